//! Errors of a node's stream that is not opened, and their gRPC status.

use tonic::{Code, Status};
use tracing::warn;

use crate::access::Denied;
use crate::names::NameTaken;
use crate::root::HelloError;

/// Why a stream is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Access(#[from] Denied),
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error(transparent)]
    Name(#[from] NameTaken),
    #[error(transparent)]
    Claim(#[from] dormouse_nodes::Refused),
    /// A label of the node does not have the syntax of one; both texts are cut.
    #[error(
        "node {node} has the label {key}={value}, which is none: use letters, digits, `-`, `_` and `.`, at most 63"
    )]
    Label {
        node: String,
        key: String,
        value: String,
    },
}

impl Refused {
    /// The status sent to the agent. Errors that another node's operator may have to correct are logged, too.
    pub(crate) fn status(&self) -> Status {
        let code = match self {
            Self::Access(_) => Code::PermissionDenied,
            Self::Name(_) | Self::Claim(dormouse_nodes::Refused::Taken { .. }) => {
                Code::AlreadyExists
            }
            Self::Hello(_) | Self::Claim(_) | Self::Label { .. } => Code::InvalidArgument,
        };
        if matches!(self, Self::Name(_) | Self::Claim(_) | Self::Label { .. }) {
            warn!(reason = %self, "an agent is refused");
        }
        Status::new(code, self.to_string())
    }
}
