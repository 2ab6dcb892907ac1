//! Reads what the runtime said: environment and configuration, checked before anything is done. Pure.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::error::{CniError, code};
use crate::version::SpecVersion;
use crate::{SOCKET_DEFAULT, STATE_DIR_DEFAULT};

mod address;
mod environment;
#[cfg(test)]
mod tests;

pub(crate) use environment::check_ifname;
pub use environment::{Command, Environment, IFNAME_LEN_MAX};

/// The longest container id that is taken, in bytes; runtimes use 64. It must fit an interface's alias.
pub const CONTAINER_ID_LEN_MAX: usize = 128;
/// The longest network name that is taken, in bytes, for the same reason.
pub const NETWORK_LEN_MAX: usize = 64;

/// The keys under which a runtime lists what GC must keep: the specification's, and one that libcni once sent.
const VALID_KEYS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// Everything the runtime said, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Invocation {
    /// The version in which to answer.
    pub version: SpecVersion,
    /// The network's name.
    pub network: String,
    /// The variables.
    pub environment: Environment,
    /// The agent's socket.
    pub socket: PathBuf,
    /// The node's state folder.
    pub state_dir: PathBuf,
    /// The address that is asked for.
    pub address: Option<Ipv6Addr>,
    /// The configuration's `dns`, for the result.
    pub dns: Option<Value>,
    /// What earlier plugins of a chain, or ADD, made.
    pub previous: Option<Value>,
    /// For GC, what to keep: (container id, interface). None when the runtime sent `null`.
    pub valid: Option<Vec<(String, String)>>,
}

impl Invocation {
    /// Reads and checks environment and configuration for a command other than VERSION.
    pub fn parse(
        command: Command,
        environment: Environment,
        stdin: &[u8],
    ) -> Result<Self, CniError> {
        environment.check(command)?;
        let conf: Map<String, Value> = serde_json::from_slice(stdin).map_err(|error| {
            CniError::new(
                code::DECODE,
                "the network configuration on standard input is no JSON object",
            )
            .details(error.to_string())
        })?;
        let version = version_of(&conf)?;
        if version < command.since() {
            let msg = format!(
                "{} needs cniVersion {}, not {version}",
                command.text(),
                command.since()
            );
            return Err(CniError::new(code::INCOMPATIBLE_VERSION, msg));
        }
        refuse_unsupported(&conf)?;
        let network = required_text(&conf, "name")?;
        check_name(&network, NETWORK_LEN_MAX).map_err(|why| config(format!("`name` {why}")))?;
        required_text(&conf, "type")?;
        let previous = conf.get("prevResult").filter(|v| !v.is_null()).cloned();
        if command == Command::Check && previous.is_none() {
            return Err(config("CHECK needs `prevResult`"));
        }
        Ok(Self {
            version,
            network,
            address: address::requested(&conf, &environment.args)?,
            socket: path(&conf, "socket", SOCKET_DEFAULT)?,
            state_dir: path(&conf, "stateDir", STATE_DIR_DEFAULT)?,
            dns: conf.get("dns").cloned(),
            previous,
            valid: if command == Command::Gc {
                valid(&conf)?
            } else {
                None
            },
            environment,
        })
    }
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

fn path(conf: &Map<String, Value>, key: &str, default: &str) -> Result<PathBuf, CniError> {
    match conf.get(key) {
        None | Some(Value::Null) => Ok(default.into()),
        Some(Value::String(text)) if text.starts_with('/') => Ok(text.into()),
        Some(other) => Err(config(format!(
            "`{key}` must be an absolute path, not {other}"
        ))),
    }
}

/// What would silently not be done is refused.
fn refuse_unsupported(conf: &Map<String, Value>) -> Result<(), CniError> {
    let refuse = |key: &str, value: &Value, why: &str| {
        let msg = format!("unsupported field `{key}` with value {value}");
        Err(CniError::new(code::UNSUPPORTED_FIELD, msg).details(why))
    };
    if let Some(value) = conf.get("ipMasq").filter(|v| **v == Value::Bool(true)) {
        return refuse(
            "ipMasq",
            value,
            "pods keep their addresses: there is no NAT",
        );
    }
    if let Some(value) = conf
        .get("ipam")
        .filter(|v| v.as_object().is_some_and(|o| !o.is_empty()))
    {
        return refuse(
            "ipam",
            value,
            "addresses come from the node's agent; remove `ipam`",
        );
    }
    let ports = conf
        .get("runtimeConfig")
        .and_then(|r| r.get("portMappings"));
    if let Some(value) = ports.filter(|v| v.as_array().is_some_and(|a| !a.is_empty())) {
        return refuse(
            "runtimeConfig.portMappings",
            value,
            "there is no NAT; chain the portmap plugin and remove the capability from this one",
        );
    }
    Ok(())
}

/// An absent list is refused, as it must never be read as an empty one; Go's nil slice arrives as `null`.
fn valid(conf: &Map<String, Value>) -> Result<Option<Vec<(String, String)>>, CniError> {
    let Some((key, value)) = VALID_KEYS
        .iter()
        .find_map(|k| conf.get(*k).map(|v| (*k, v)))
    else {
        return Err(config(format!(
            "GC needs `{}`; nothing was removed",
            VALID_KEYS[0]
        )));
    };
    if value.is_null() {
        return Ok(None);
    }
    let text = |item: &Value, name: &str| item.get(name)?.as_str().map(str::to_owned);
    let pair = |item: &Value| Some((text(item, "containerID")?, text(item, "ifname")?));
    let list = value
        .as_array()
        .and_then(|list| list.iter().map(pair).collect());
    list.map(Some).ok_or_else(|| {
        let form = "a list of {\"containerID\": …, \"ifname\": …}";
        CniError::new(
            code::DECODE,
            format!("`{key}` is not {form}; nothing was removed"),
        )
    })
}
