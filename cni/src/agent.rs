//! The call to the node's agent: over its socket or, if no agent runs and the configuration allows it, to
//! `dormouse-agent offline`, started for this one request.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use dormouse_cni::error::CniError;
use dormouse_cni::invocation::{NodeOptions, Offline};
use dormouse_cni::message::{Reply, Request};
use dormouse_cni::wire;

/// Longest wait for a reply; container runtimes abort a plugin after two minutes.
const REPLY_DEADLINE: Duration = Duration::from_secs(40);
/// File name of the agent's program.
const AGENT: &str = "dormouse-agent";

/// Why there is no reply.
pub(crate) enum CallError {
    /// No process listens, or the agent ended during the request.
    Down(io::Error),
    /// The agent runs but did not reply in time, or another operation failed.
    Failed(io::Error),
    /// `dormouse-agent offline` could not be started or did not reply.
    Offline(io::Error),
}

pub(crate) fn call(
    node: &NodeOptions,
    request: &Request,
    netns: Option<&File>,
) -> Result<Reply, CallError> {
    let result = UnixStream::connect(&node.socket)
        .map_err(CallError::from_connect)
        .and_then(|stream| exchange(&stream, request, netns).map_err(CallError::from_io));
    match (result, &node.offline) {
        (Err(CallError::Down(_)), Some(offline)) if request.may_be_offline() => {
            call_offline(offline, &node.state_dir, request, netns).map_err(CallError::Offline)
        }
        (result, _) => result,
    }
}

fn exchange(stream: &UnixStream, request: &Request, netns: Option<&File>) -> io::Result<Reply> {
    stream.set_read_timeout(Some(REPLY_DEADLINE))?;
    match wire::send_request(stream, request, netns.map(AsFd::as_fd)) {
        // An agent that refuses the caller replies without reading the request.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            wire::receive_reply(stream).map_err(|_nothing| error)
        }
        sent => sent.and_then(|()| wire::receive_reply(stream)),
    }
}

/// Starts `dormouse-agent offline` with one end of a socket pair as its standard input. It handles that connection like
/// a listening agent: if the plugin is killed, the connection closes and the agent undoes an unfinished request.
fn call_offline(
    offline: &Offline,
    state_dir: &Path,
    request: &Request,
    netns: Option<&File>,
) -> io::Result<Reply> {
    let (plugin_end, agent_end) = UnixStream::pair()?;
    let program = offline.agent.clone().unwrap_or_else(find_agent);
    let mut agent = Command::new(&program)
        .arg("offline")
        .arg("--state-dir")
        .arg(state_dir)
        .stdin(OwnedFd::from(agent_end))
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| {
            let text = format!("failed to execute {}: {error}", program.display());
            io::Error::new(error.kind(), text)
        })?;
    let reply = exchange(&plugin_end, request, netns);
    drop(plugin_end);
    agent.wait()?;
    reply
}

/// The agent beside this program, else the first in `PATH`.
fn find_agent() -> PathBuf {
    let plugin = std::env::current_exe().ok();
    plugin
        .and_then(|path| Some(path.parent()?.join(AGENT)))
        .filter(|beside| beside.is_file())
        .unwrap_or_else(|| AGENT.into())
}

impl CallError {
    fn from_connect(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::Down(error),
            _ => Self::Failed(error),
        }
    }

    fn from_io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => Self::Down(error),
            _ => Self::Failed(error),
        }
    }

    /// The CNI error with this code.
    pub(crate) fn into_cni(self, node: &NodeOptions, code: u32) -> CniError {
        let socket = node.socket.display();
        match self {
            Self::Down(error) => {
                CniError::new(code, format!("no dormouse-agent answers at {socket}"))
                    .details(format!("{error}; start dormouse-agent on this node"))
            }
            Self::Failed(error) => CniError::new(
                code,
                format!("the request to dormouse-agent at {socket} failed"),
            )
            .details(error.to_string()),
            Self::Offline(error) => {
                let msg = format!(
                    "no dormouse-agent answers at {socket} and `dormouse-agent offline` failed"
                );
                CniError::new(code, msg).details(error.to_string())
            }
        }
    }
}
