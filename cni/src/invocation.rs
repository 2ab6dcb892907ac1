//! Reads what the runtime said: environment and configuration, checked before anything is done. Pure.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{CniError, code};
use crate::message::{Wanted, reservation};
use crate::object::Object;
use crate::result::AddResult;
use crate::version::SpecVersion;

mod arguments;
mod environment;
mod node;
mod role;
mod supported;
#[cfg(test)]
mod tests;
mod valid;
mod wanted;

pub(crate) use environment::check_ifname;
pub use environment::{Command, Environment, IFNAME_LEN_MAX};
pub use node::{NodeOptions, Offline};
pub use role::Role;

/// The longest container id that is taken, in bytes; runtimes use 64. It must fit an interface's alias.
pub const CONTAINER_ID_LEN_MAX: usize = 128;
/// The longest network name that is taken, in bytes, for the same reason.
pub const NETWORK_LEN_MAX: usize = 64;

/// Everything the runtime said, checked.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The version in which to answer.
    pub version: SpecVersion,
    /// The network's name.
    pub network: String,
    /// What the plugin is to the configuration.
    pub role: Role,
    /// The variables.
    pub environment: Environment,
    /// Where to ask, and what to do when nobody answers.
    pub node: NodeOptions,
    /// What ADD shall give.
    pub wanted: Wanted,
    /// The configuration's `dns`, for the result.
    pub dns: Option<Value>,
    /// What earlier plugins of a chain, or ADD, made.
    pub previous: Option<AddResult>,
    /// For GC, what to keep: (container id, interface). None when the runtime sent `null`.
    pub valid: Option<Vec<(String, String)>>,
}

impl Invocation {
    /// Reads and checks environment and configuration for a command other than VERSION. DEL and GC look only at what
    /// they need: what was wired once must go, whatever the configuration says by then.
    pub fn parse(
        command: Command,
        environment: Environment,
        stdin: &[u8],
    ) -> Result<Self, CniError> {
        environment.check(command)?;
        let conf = object(stdin)?;
        let version = version_of(&conf)?;
        if version < command.since() {
            let msg = format!(
                "{} needs cniVersion {}, not {version}",
                command.text(),
                command.since()
            );
            return Err(CniError::new(code::INCOMPATIBLE_VERSION, msg));
        }
        let network = required_text(&conf, "name")?;
        check_name(&network, NETWORK_LEN_MAX).map_err(|why| config(format!("`name` {why}")))?;
        let role = Role::of(&required_text(&conf, "type")?, &conf, &environment.program);
        let (makes, looks) = match command {
            Command::Add => (true, true),
            Command::Check => (false, true),
            _ => (false, false),
        };
        if role == Role::Main && (looks || command == Command::Status) {
            supported::check(&conf, &environment.program)?;
        }
        let previous = if looks {
            previous(stdin, version)?
        } else {
            None
        };
        if command == Command::Check && previous.is_none() {
            return Err(config("CHECK needs `prevResult`"));
        }
        let wanted = if makes {
            wanted::wanted(&conf, &environment.args)?
        } else {
            Wanted::default()
        };
        let valid = if command == Command::Gc {
            valid::valid(&conf)?
        } else {
            None
        };
        Ok(Self {
            version,
            network,
            role,
            node: NodeOptions::parse(role.options(&conf))?,
            wanted,
            dns: conf.get("dns").filter(|dns| !dns.is_null()).cloned(),
            previous,
            valid,
            environment,
        })
    }

    /// The network under which the agent knows the attachment.
    pub fn kept_under(&self) -> String {
        match self.role {
            Role::Main => self.network.clone(),
            Role::Ipam => reservation(&self.network),
        }
    }
}

fn object(stdin: &[u8]) -> Result<Map<String, Value>, CniError> {
    serde_json::from_slice(stdin).map_err(|error| {
        CniError::new(
            code::DECODE,
            "the network configuration on standard input is no JSON object",
        )
        .details(error.to_string())
    })
}

/// Read by itself: of what others wrote, every byte counts.
fn previous(stdin: &[u8], version: SpecVersion) -> Result<Option<AddResult>, CniError> {
    #[derive(Deserialize)]
    struct Chained {
        #[serde(rename = "prevResult")]
        previous: Option<Object>,
    }
    serde_json::from_slice(stdin)
        .and_then(|Chained { previous }| previous.map(|p| AddResult::read(p, version)).transpose())
        .map_err(|error| {
            let msg = "`prevResult` is no result of ADD";
            CniError::new(code::DECODE, msg).details(error.to_string())
        })
}

/// The version in which to answer when the rest of the configuration may be wrong.
pub fn version_for_errors(stdin: &[u8]) -> SpecVersion {
    serde_json::from_slice::<Map<String, Value>>(stdin)
        .ok()
        .and_then(|conf| version_of(&conf).ok())
        .unwrap_or(SpecVersion::V1_1_0)
}

fn config(msg: impl Into<String>) -> CniError {
    CniError::new(code::INVALID_CONFIG, msg)
}

fn unsupported(key: &str, value: &Value) -> CniError {
    let msg = format!("unsupported field `{key}` with value {value}");
    CniError::new(code::UNSUPPORTED_FIELD, msg)
}

pub(crate) fn check_name(name: &str, len_max: usize) -> Result<(), String> {
    if name.len() > len_max {
        return Err(format!("is longer than {len_max} bytes"));
    }
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
    if !first || !bytes.all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)) {
        return Err(format!(
            "`{name}` does not match [a-zA-Z0-9][a-zA-Z0-9_.-]*"
        ));
    }
    Ok(())
}

fn version_of(conf: &Map<String, Value>) -> Result<SpecVersion, CniError> {
    match conf.get("cniVersion") {
        None | Some(Value::Null) => SpecVersion::parse(""),
        Some(Value::String(text)) => SpecVersion::parse(text),
        Some(_) => Err(CniError::new(code::DECODE, "`cniVersion` is no string")),
    }
}

fn required_text(conf: &Map<String, Value>, key: &str) -> Result<String, CniError> {
    match conf.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        None | Some(Value::Null | Value::String(_)) => {
            Err(config(format!("the network configuration has no `{key}`")))
        }
        Some(_) => Err(CniError::new(code::DECODE, format!("`{key}` is no string"))),
    }
}
