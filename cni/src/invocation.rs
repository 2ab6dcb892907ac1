//! The plugin's input: environment and network configuration, parsed and checked before anything is done. Pure.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{CniError, code};
use crate::message::{Wanted, reservation};
use crate::names::{NETWORK_LEN_MAX, check_name};
use crate::object::Object;
use crate::result::AddResult;
use crate::version::SpecVersion;

mod arguments;
mod environment;
mod node;
mod ports;
mod role;
mod supported;
#[cfg(test)]
mod tests;
mod valid;
mod wanted;

pub use environment::{Command, Environment};
pub use node::{NodeOptions, Offline};
pub use role::Role;

/// One call of the plugin, checked.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The configuration's `cniVersion`; the result has the same.
    pub version: SpecVersion,
    /// The configuration's `name`.
    pub network: String,
    /// Whether the plugin wires the pod or only reserves an address.
    pub role: Role,
    /// The environment variables.
    pub environment: Environment,
    /// The agent's socket, and the fallback when no agent runs.
    pub node: NodeOptions,
    /// Addresses, MAC and limits that the runtime requests; for ADD only.
    pub wanted: Wanted,
    /// The configuration's `dns`, for the result.
    pub dns: Option<Value>,
    /// `prevResult`: of earlier plugins in the chain, or of ADD; for ADD and CHECK only.
    pub previous: Option<AddResult>,
    /// For GC, the attachments to keep: (container id, interface). `None` if the runtime sent `null`.
    pub valid: Option<Vec<(String, String)>>,
}

impl Invocation {
    /// Parses and checks the input of a command other than VERSION. DEL and GC read only the fields that they need: an
    /// attachment must be removable even if its configuration has become invalid.
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
        check_name(&network, NETWORK_LEN_MAX)
            .map_err(|why| CniError::invalid_config(format!("`name` {why}")))?;
        let role = Role::of(&required_text(&conf, "type")?, &conf, &environment.program);
        let (adds, compares) = match command {
            Command::Add => (true, true),
            Command::Check => (false, true),
            _ => (false, false),
        };
        if role == Role::Main && (compares || command == Command::Status) {
            supported::check(&conf, &environment.program)?;
        }
        let previous = if compares {
            previous(stdin, version)?
        } else {
            None
        };
        if command == Command::Check && previous.is_none() {
            return Err(CniError::invalid_config("CHECK needs `prevResult`"));
        }
        let wanted = if adds {
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

    /// The network name of the attachment in requests to the agent: a reservation has a name of its own.
    pub fn attachment_network(&self) -> String {
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
            "the network configuration on standard input is not a JSON object",
        )
        .details(error.to_string())
    })
}

/// Parsed apart from the other keys: results of other plugins must be returned with every byte unchanged.
fn previous(stdin: &[u8], version: SpecVersion) -> Result<Option<AddResult>, CniError> {
    #[derive(Deserialize)]
    struct Chained {
        #[serde(rename = "prevResult")]
        previous: Option<Object>,
    }
    serde_json::from_slice(stdin)
        .and_then(|Chained { previous }| previous.map(|p| AddResult::read(p, version)).transpose())
        .map_err(|error| {
            let msg = "`prevResult` is not a result of ADD";
            CniError::new(code::DECODE, msg).details(error.to_string())
        })
}

/// The version of an error reply: the configuration's if it can be read, else the newest.
pub fn version_for_errors(stdin: &[u8]) -> SpecVersion {
    serde_json::from_slice::<Map<String, Value>>(stdin)
        .ok()
        .and_then(|conf| version_of(&conf).ok())
        .unwrap_or(SpecVersion::V1_1_0)
}

fn version_of(conf: &Map<String, Value>) -> Result<SpecVersion, CniError> {
    let text = match conf.get("cniVersion") {
        None | Some(Value::Null) => "",
        Some(Value::String(text)) => text,
        Some(_) => return Err(CniError::new(code::DECODE, "`cniVersion` is not a string")),
    };
    SpecVersion::parse(text).map_err(|error| CniError::unknown_version(&error))
}

fn required_text(conf: &Map<String, Value>, key: &str) -> Result<String, CniError> {
    match conf.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        None | Some(Value::Null | Value::String(_)) => Err(CniError::invalid_config(format!(
            "the network configuration has no `{key}`"
        ))),
        Some(_) => Err(CniError::new(
            code::DECODE,
            format!("`{key}` is not a string"),
        )),
    }
}
