//! The command and the variables that come with it. Pure.

use super::{CONTAINER_ID_LEN_MAX, check_name};
use crate::error::{CniError, code};
use crate::version::SpecVersion;

/// The kernel's limit for an interface's name, in bytes.
pub const IFNAME_LEN_MAX: usize = 15;

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
            _ => return Err(invalid(format!("unknown CNI_COMMAND `{text}`"))),
        })
    }

    fn required(self) -> &'static [&'static str] {
        match self {
            Self::Add | Self::Check => &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
            Self::Del => &["CNI_CONTAINERID", "CNI_IFNAME"],
            Self::Version | Self::Status | Self::Gc => &[],
        }
    }

    pub(super) fn since(self) -> SpecVersion {
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
    /// The name under which the plugin was executed
    pub program: String,
    /// `CNI_NETNS_OVERRIDE`: the plugin's own namespace may be wired
    pub netns_override: bool,
}

impl Environment {
    /// Reads the variables through `get`.
    pub fn read(program: String, get: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name| get(name).unwrap_or_default();
        Self {
            container_id: text("CNI_CONTAINERID"),
            netns: text("CNI_NETNS"),
            ifname: text("CNI_IFNAME"),
            args: text("CNI_ARGS"),
            program,
            netns_override: matches!(text("CNI_NETNS_OVERRIDE").as_str(), "1" | "true"),
        }
    }

    pub(super) fn check(&self, command: Command) -> Result<(), CniError> {
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
            return Err(invalid(format!(
                "required environment variables are not set: {names}"
            )));
        }
        if command.required().contains(&"CNI_CONTAINERID") {
            check_name(&self.container_id, CONTAINER_ID_LEN_MAX)
                .map_err(|why| invalid(format!("CNI_CONTAINERID {why}")))?;
            check_ifname(&self.ifname)?;
        }
        Ok(())
    }
}

pub(crate) fn check_ifname(name: &str) -> Result<(), CniError> {
    let reason = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > IFNAME_LEN_MAX {
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
    Err(invalid(format!("CNI_IFNAME `{name}` {reason}")))
}

pub(super) fn invalid(msg: impl Into<String>) -> CniError {
    CniError::new(code::INVALID_ENVIRONMENT, msg)
}
