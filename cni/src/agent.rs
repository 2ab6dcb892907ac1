//! Asks the node's agent: the one that listens or, where the configuration allows it, one that is started for this one
//! request while no other runs.

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

/// How long an answer may take; runtimes give up after two minutes.
const ANSWER_DEADLINE: Duration = Duration::from_secs(40);
/// The agent's program.
const AGENT: &str = "dormouse-agent";

/// Why there is no answer.
pub(crate) enum Silence {
    /// Nobody listens, or who listened went away.
    Down(io::Error),
    /// It is there but did not answer in time, or something else failed.
    Failed(io::Error),
    /// The agent that was to be started for the request did not answer.
    Offline(io::Error),
}

pub(crate) fn ask(
    node: &NodeOptions,
    request: &Request,
    netns: Option<&File>,
) -> Result<Reply, Silence> {
    let asked = UnixStream::connect(&node.socket)
        .map_err(Silence::from_connect)
        .and_then(|stream| converse(&stream, request, netns).map_err(Silence::from_io));
    match (asked, &node.offline) {
        (Err(Silence::Down(_)), Some(offline)) if request.may_be_offline() => {
            ask_offline(offline, &node.state_dir, request, netns).map_err(Silence::Offline)
        }
        (asked, _) => asked,
    }
}

fn converse(stream: &UnixStream, request: &Request, netns: Option<&File>) -> io::Result<Reply> {
    stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
    match wire::send_request(stream, request, netns.map(AsFd::as_fd)) {
        // An agent that refuses the caller says so without reading.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            wire::receive_reply(stream).map_err(|_nothing| error)
        }
        sent => sent.and_then(|()| wire::receive_reply(stream)),
    }
}

/// Starts `dormouse-agent offline` with one end of a connection as its standard input. It sees our end as a listening
/// agent would: when we die, what it began is undone.
fn ask_offline(
    offline: &Offline,
    state_dir: &Path,
    request: &Request,
    netns: Option<&File>,
) -> io::Result<Reply> {
    let (ours, theirs) = UnixStream::pair()?;
    let program = offline.agent.clone().unwrap_or_else(find_agent);
    let mut agent = Command::new(&program)
        .arg("offline")
        .arg("--state-dir")
        .arg(state_dir)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| {
            let text = format!("failed to execute {}: {error}", program.display());
            io::Error::new(error.kind(), text)
        })?;
    let reply = converse(&ours, request, netns);
    drop(ours);
    agent.wait()?;
    reply
}

/// Beside this program, else wherever `PATH` says.
fn find_agent() -> PathBuf {
    let own = std::env::current_exe().ok();
    own.and_then(|own| Some(own.parent()?.join(AGENT)))
        .filter(|beside| beside.is_file())
        .unwrap_or_else(|| AGENT.into())
}

impl Silence {
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

    /// In CNI's words.
    pub(crate) fn error(self, node: &NodeOptions, code: u32) -> CniError {
        let socket = node.socket.display();
        match self {
            Self::Down(error) => {
                CniError::new(code, format!("no dormouse-agent answers at {socket}"))
                    .details(format!("{error}; start dormouse-agent on this node"))
            }
            Self::Failed(error) => CniError::new(
                code,
                format!("failed to talk to dormouse-agent at {socket}"),
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
