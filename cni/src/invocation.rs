//! Reads what the runtime said: environment and configuration, checked before anything is done. Pure.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::error::{CniError, code};
use crate::version::SpecVersion;
use crate::{SOCKET_DEFAULT, STATE_DIR_DEFAULT};

mod address;
#[cfg(test)]
mod tests;

/// The longest container id that is taken, in bytes; runtimes use 64. It must fit an interface's alias.
pub const CONTAINER_ID_LEN_MAX: usize = 128;
/// The longest network name that is taken, in bytes, for the same reason.
pub const NETWORK_LEN_MAX: usize = 64;
/// The kernel's limit for an interface's name, in bytes.
pub const IFNAME_LEN_MAX: usize = 15;

/// The keys under which a runtime lists what GC must keep: the specification's, and one that libcni once sent.
const VALID_KEYS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// What the runtime wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    /// Wire an interface.
    Add,
    /// Unwire it.
    Del,
    /// Is it as it was made?
    Check,
    /// Which versions are spoken?
    Version,
    /// Could ADD succeed now?
    Status,
    /// Unwire all but those listed.
    Gc,
}

impl Command {
    /// As it is written in `CNI_COMMAND`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Version => "VERSION",
            Self::Status => "STATUS",
            Self::Gc => "GC",
        }
    }

    /// Reads `CNI_COMMAND`.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        Ok(match text {
            "ADD" => Self::Add,
            "DEL" => Self::Del,
            "CHECK" => Self::Check,
            "VERSION" => Self::Version,
            "STATUS" => Self::Status,
            "GC" => Self::Gc,
            _ => return Err(environment(format!("unknown CNI_COMMAND `{text}`"))),
        })
    }

    fn required(self) -> &'static [&'static str] {
        match self {
            Self::Add | Self::Check => &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
            Self::Del => &["CNI_CONTAINERID", "CNI_IFNAME"],
            Self::Version | Self::Status | Self::Gc => &[],
        }
    }

    fn since(self) -> SpecVersion {
        match self {
            Self::Add | Self::Del | Self::Version => SpecVersion::V0_1_0,
            Self::Check => SpecVersion::V0_4_0,
            Self::Status | Self::Gc => SpecVersion::V1_1_0,
        }
    }
}

/// The variables that a runtime sets; empty when it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_NETNS`, a path
    pub netns: String,
    /// `CNI_IFNAME`
    pub ifname: String,
    /// `CNI_ARGS`
    pub args: String,
    /// `CNI_NETNS_OVERRIDE`: the plugin's own namespace may be wired
    pub netns_override: bool,
}

impl Environment {
    /// Reads the variables through `get`.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name| get(name).unwrap_or_default();
        Self {
            container_id: text("CNI_CONTAINERID"),
            netns: text("CNI_NETNS"),
            ifname: text("CNI_IFNAME"),
            args: text("CNI_ARGS"),
            netns_override: matches!(text("CNI_NETNS_OVERRIDE").as_str(), "1" | "true"),
        }
    }

    fn check(&self, command: Command) -> Result<(), CniError> {
        let value = |name: &str| match name {
            "CNI_CONTAINERID" => &self.container_id,
            "CNI_NETNS" => &self.netns,
            _ => &self.ifname,
        };
        let missing: Vec<_> = command
            .required()
            .iter()
            .copied()
            .filter(|name| value(name).is_empty())
            .collect();
        if !missing.is_empty() {
            let names = missing.join(", ");
            return Err(environment(format!(
                "required environment variables are not set: {names}"
            )));
        }
        if command.required().contains(&"CNI_CONTAINERID") {
            check_name(&self.container_id, CONTAINER_ID_LEN_MAX)
                .map_err(|why| environment(format!("CNI_CONTAINERID {why}")))?;
            check_ifname(&self.ifname)?;
        }
        Ok(())
    }
}

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

fn environment(msg: impl Into<String>) -> CniError {
    CniError::new(code::INVALID_ENVIRONMENT, msg)
}

fn config(msg: impl Into<String>) -> CniError {
    CniError::new(code::INVALID_CONFIG, msg)
}

fn check_name(name: &str, len_max: usize) -> Result<(), String> {
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

fn check_ifname(name: &str) -> Result<(), CniError> {
    let reason = if name.len() > IFNAME_LEN_MAX {
        format!("is longer than {IFNAME_LEN_MAX} bytes")
    } else if matches!(name, "." | "..") {
        "must not be . or ..".to_owned()
    } else if name
        .chars()
        .any(|c| matches!(c, '/' | ':') || c.is_whitespace())
    {
        "must not contain /, : or white space".to_owned()
    } else {
        return Ok(());
    };
    Err(environment(format!("CNI_IFNAME `{name}` {reason}")))
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
