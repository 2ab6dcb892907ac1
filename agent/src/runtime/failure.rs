//! Errors of starting and clearing a pod, for its state and the log.

use std::path::PathBuf;

use super::plugin::PluginError;
use super::record::RecordError;
use super::spec::SpecError;

/// Why the runtime does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The records of the pods cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The root of the pods cannot be made.
    #[error("failed to make the pods' root")]
    Root(#[source] std::io::Error),
}

/// Why a pod did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("failed to create {path}")]
    Make {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("failed to read the users of the node")]
    Users(#[source] std::io::Error),
    #[error("failed to connect the pod to the network")]
    Wire(#[source] PluginError),
    #[error("failed to start the process")]
    Process(#[source] std::io::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl StartError {
    /// CamelCase, for the pod's state.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Spec(_) => "InvalidPod",
            Self::Make { .. } | Self::Users(_) | Self::Record(_) => "SandboxFailed",
            Self::Wire(_) => "NetworkFailed",
            Self::Process(_) => "StartFailed",
        }
    }
}
