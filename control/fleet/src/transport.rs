//! The gRPC servers of the control plane's ports, each with a limit of streams on one connection: a stream costs the server
//! kilobytes from its first frame on, and HTTP/2 sets no limit by itself.

use tonic::transport::Server;

use crate::logs::REQUESTS_PER_NODE_MAX;

/// Whose port a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// Processes that join. They need no certificate.
    Joining,
    /// Agents.
    Agents,
    /// Roles and members of the control plane, and administrators.
    Roles,
}

/// A process joins with one call; the others are for one that tries again.
const OF_JOINING: u32 = 4;
/// The stream of the node, that of its logs, and a call for each log that is read, three times over: a call that has ended on one side may not have on the other.
const OF_AGENTS: u32 = 64;
const _: () = assert!(OF_AGENTS as usize >= 3 * (REQUESTS_PER_NODE_MAX + 1));
/// A role has a few streams, and calls that end. Further ones wait for those.
const OF_ROLES: u32 = 256;

impl Callers {
    /// The streams that a connection may have. Further calls of a client wait.
    pub const fn streams_max(self) -> u32 {
        match self {
            Self::Joining => OF_JOINING,
            Self::Agents => OF_AGENTS,
            Self::Roles => OF_ROLES,
        }
    }

    /// A server for them.
    pub fn server(self) -> Server {
        Server::builder().max_concurrent_streams(self.streams_max())
    }
}
