//! Asks the agent, and says what each command means when the agent does not answer.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use dormouse_cni::error::{CniError, code};
use dormouse_cni::message::{Attachment, Reply, Request};
use dormouse_cni::pending::PendingDel;
use dormouse_cni::{Invocation, result, wire};
use serde_json::Value;

/// How long an answer may take; runtimes give up after two minutes.
const ANSWER_DEADLINE: Duration = Duration::from_secs(40);

/// Why there is no answer.
enum Silence {
    /// Nobody listens, or who listened went away.
    Down(io::Error),
    /// It is there but did not answer in time, or something else failed.
    Failed(io::Error),
}

pub(crate) fn add(invocation: &Invocation) -> Result<Value, CniError> {
    let netns = open_netns(invocation)?;
    let attachment = attachment(invocation);
    let request = Request::Add {
        attachment,
        address: invocation.address,
    };
    match ask(invocation, &request, Some(&netns)) {
        Ok(Reply::Wired(wired)) => Ok(result::render(invocation, &wired)),
        Ok(Reply::Failed(error)) => Err(error),
        Ok(Reply::Done) => Err(CniError::new(
            code::IO,
            "the agent's answer to ADD has no result",
        )),
        Err(silence) => Err(silence.error(invocation, code::TRY_AGAIN)),
    }
}

/// Succeeds with the agent down if the deletion is durably noted: a failing DEL would wedge the pod's removal.
pub(crate) fn del(invocation: &Invocation) -> Result<(), CniError> {
    let attachment = attachment(invocation);
    match ask(
        invocation,
        &Request::Del {
            attachment: attachment.clone(),
        },
        None,
    ) {
        Ok(Reply::Failed(error)) => Err(error),
        Ok(_) => Ok(()),
        Err(Silence::Down(_)) => PendingDel::now(attachment)
            .and_then(|pending| pending.write(&invocation.state_dir))
            .map_err(|error| {
                let folder = invocation.state_dir.display();
                let msg = format!("the agent is down and DEL cannot be noted below {folder}");
                CniError::new(code::TRY_AGAIN, msg).details(error.to_string())
            }),
        Err(silence) => Err(silence.error(invocation, code::TRY_AGAIN)),
    }
}

pub(crate) fn check(invocation: &Invocation) -> Result<(), CniError> {
    let netns = open_netns(invocation)?;
    let addresses = invocation
        .previous
        .as_ref()
        .map(result::addresses)
        .unwrap_or_default();
    let request = Request::Check {
        attachment: attachment(invocation),
        addresses,
    };
    done(
        ask(invocation, &request, Some(&netns)),
        invocation,
        code::TRY_AGAIN,
    )
}

pub(crate) fn status(invocation: &Invocation) -> Result<(), CniError> {
    done(
        ask(invocation, &Request::Status {}, None),
        invocation,
        code::NOT_AVAILABLE,
    )
}

pub(crate) fn gc(invocation: &Invocation) -> Result<(), CniError> {
    let request = Request::Gc {
        network: invocation.network.clone(),
        valid: invocation.valid.clone(),
    };
    done(ask(invocation, &request, None), invocation, code::TRY_AGAIN)
}

fn done(
    answer: Result<Reply, Silence>,
    invocation: &Invocation,
    silent: u32,
) -> Result<(), CniError> {
    match answer {
        Ok(Reply::Failed(error)) => Err(error),
        Ok(_) => Ok(()),
        Err(silence) => Err(silence.error(invocation, silent)),
    }
}

fn attachment(invocation: &Invocation) -> Attachment {
    Attachment {
        network: invocation.network.clone(),
        container_id: invocation.environment.container_id.clone(),
        ifname: invocation.environment.ifname.clone(),
    }
}

fn open_netns(invocation: &Invocation) -> Result<File, CniError> {
    let path = &invocation.environment.netns;
    let error = |error: io::Error| {
        CniError::new(
            code::INVALID_ENVIRONMENT,
            format!("CNI_NETNS `{path}` cannot be opened"),
        )
        .details(error.to_string())
    };
    let netns = File::open(path).map_err(error)?;
    let theirs = netns.metadata().map_err(error)?;
    let ours = std::fs::metadata("/proc/self/ns/net").map_err(error)?;
    let same = (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino());
    if same && !invocation.environment.netns_override {
        let msg = format!("CNI_NETNS `{path}` is the node's own network namespace");
        return Err(CniError::new(code::INVALID_NETNS, msg)
            .details("set CNI_NETNS_OVERRIDE=1 if that is meant"));
    }
    Ok(netns)
}

fn ask(invocation: &Invocation, request: &Request, netns: Option<&File>) -> Result<Reply, Silence> {
    let stream = UnixStream::connect(&invocation.socket).map_err(Silence::from_connect)?;
    stream
        .set_read_timeout(Some(ANSWER_DEADLINE))
        .map_err(Silence::Failed)?;
    wire::send_request(&stream, request, netns.map(AsFd::as_fd)).map_err(Silence::from_io)?;
    wire::receive_reply(&stream).map_err(Silence::from_io)
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

    fn error(self, invocation: &Invocation, code: u32) -> CniError {
        let socket = invocation.socket.display();
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
        }
    }
}
