//! `CNI_COMMAND` and the environment variables of a call. Pure.

use crate::error::CniError;
use crate::names::{CONTAINER_ID_LEN_MAX, check_ifname, check_name};
use crate::version::SpecVersion;

/// The operation that the runtime requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    /// Create and configure an interface.
    Add,
    /// Remove it.
    Del,
    /// Compare it with ADD's result.
    Check,
    /// List the supported versions.
    Version,
    /// Report whether ADD can succeed now.
    Status,
    /// Remove all attachments that are not listed.
    Gc,
}

impl Command {
    /// The value of `CNI_COMMAND`.
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

    /// Parses the value of `CNI_COMMAND`.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        Ok(match text {
            "ADD" => Self::Add,
            "DEL" => Self::Del,
            "CHECK" => Self::Check,
            "VERSION" => Self::Version,
            "STATUS" => Self::Status,
            "GC" => Self::Gc,
            _ => {
                return Err(CniError::invalid_environment(format!(
                    "unknown CNI_COMMAND `{text}`"
                )));
            }
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

/// The variables that a runtime sets; one that is not set is empty.
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
    /// File name under which the plugin was executed
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
            return Err(CniError::invalid_environment(format!(
                "required environment variables are not set: {names}"
            )));
        }
        if command.required().contains(&"CNI_CONTAINERID") {
            check_name(&self.container_id, CONTAINER_ID_LEN_MAX)
                .map_err(|why| CniError::invalid_environment(format!("CNI_CONTAINERID {why}")))?;
            check_ifname(&self.ifname)?;
        }
        Ok(())
    }
}
