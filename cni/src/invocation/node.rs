//! The plugin's own keys of the configuration: the agent's socket, the state folder, the fallback. Pure.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::error::CniError;
use crate::{SOCKET_DEFAULT, STATE_DIR_DEFAULT};

/// How to reach the node's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// `socket`: the agent's Unix socket.
    pub socket: PathBuf,
    /// `stateDir`: the node's state folder.
    pub state_dir: PathBuf,
    /// `"fallback": "offline"`: pods are wired even while the agent is down.
    pub offline: Option<Offline>,
}

/// How pods are wired while the agent is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offline {
    /// `agent`: path of the agent's program; without it, the one beside the plugin, else the first in `PATH`.
    pub agent: Option<PathBuf>,
}

impl NodeOptions {
    pub(super) fn parse(options: &Map<String, Value>) -> Result<Self, CniError> {
        let or = |default: &str, path: Option<PathBuf>| path.unwrap_or_else(|| default.into());
        let agent = path(options, "agent")?;
        let offline = match options.get("fallback") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text == "none" => None,
            Some(Value::String(text)) if text == "offline" => Some(Offline { agent }),
            Some(other) => {
                let msg = format!("`fallback` must be \"offline\" or \"none\", not {other}");
                return Err(CniError::invalid_config(msg));
            }
        };
        Ok(Self {
            socket: or(SOCKET_DEFAULT, path(options, "socket")?),
            state_dir: or(STATE_DIR_DEFAULT, path(options, "stateDir")?),
            offline,
        })
    }
}

fn path(options: &Map<String, Value>, key: &str) -> Result<Option<PathBuf>, CniError> {
    match options.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.starts_with('/') => Ok(Some(text.into())),
        Some(other) => Err(CniError::invalid_config(format!(
            "`{key}` must be an absolute path, not {other}"
        ))),
    }
}
