//! What each command asks of the agent, and what it means when the agent does not answer.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use dormouse_cni::error::{CniError, code};
use dormouse_cni::invocation::Role;
use dormouse_cni::message::{Attachment, Reply, Request};
use dormouse_cni::object::Object;
use dormouse_cni::pending::PendingDel;
use dormouse_cni::{Invocation, result};

use crate::agent::{self, Silence};

pub(crate) fn add(invocation: &Invocation) -> Result<Object, CniError> {
    let netns = open_netns(invocation)?;
    let (attachment, wanted) = (attachment(invocation), invocation.wanted.clone());
    let request = match invocation.role {
        Role::Main => Request::Add { attachment, wanted },
        Role::Ipam => Request::Reserve { attachment, wanted },
    };
    let written = match agent::ask(&invocation.node, &request, Some(&netns)) {
        Ok(Reply::Wired(wired)) => result::wired(invocation, &wired),
        Ok(Reply::Reserved(reserved)) => result::reserved(invocation, &reserved),
        Ok(Reply::Failed(error)) => return Err(with_path(error, invocation)),
        Ok(Reply::Done) => {
            let msg = "the agent's answer to ADD has no result";
            return Err(CniError::new(code::IO, msg));
        }
        Err(silence) => return Err(silence.error(&invocation.node, code::TRY_AGAIN)),
    };
    written.map_err(|error| {
        CniError::new(code::IO, "failed to write the result of ADD").details(error.to_string())
    })
}

/// Succeeds with the agent down if the deletion is durably noted: a failing DEL would wedge the pod's removal.
pub(crate) fn del(invocation: &Invocation) -> Result<(), CniError> {
    let attachment = attachment(invocation);
    let request = Request::Del {
        attachment: attachment.clone(),
    };
    match agent::ask(&invocation.node, &request, None) {
        Ok(Reply::Failed(error)) => Err(error),
        Ok(_) => Ok(()),
        Err(Silence::Down(_)) => PendingDel::now(attachment)
            .and_then(|pending| pending.write(&invocation.node.state_dir))
            .map_err(|error| {
                let folder = invocation.node.state_dir.display();
                let msg = format!("the agent is down and DEL cannot be noted below {folder}");
                CniError::new(code::TRY_AGAIN, msg).details(error.to_string())
            }),
        Err(silence) => Err(silence.error(&invocation.node, code::TRY_AGAIN)),
    }
}

pub(crate) fn check(invocation: &Invocation) -> Result<(), CniError> {
    let netns = open_netns(invocation)?;
    let previous = invocation.previous.as_ref();
    let ifname = &invocation.environment.ifname;
    let request = Request::Check {
        attachment: attachment(invocation),
        addresses: previous
            .map(result::AddResult::addresses)
            .unwrap_or_default(),
        mac: previous.and_then(|previous| previous.mac(ifname)),
    };
    done(invocation, &request, Some(&netns), code::TRY_AGAIN)
}

pub(crate) fn status(invocation: &Invocation) -> Result<(), CniError> {
    done(invocation, &Request::Status {}, None, code::NOT_AVAILABLE)
}

pub(crate) fn gc(invocation: &Invocation) -> Result<(), CniError> {
    let request = Request::Gc {
        network: invocation.kept_under(),
        valid: invocation.valid.clone(),
    };
    done(invocation, &request, None, code::TRY_AGAIN)
}

fn done(
    invocation: &Invocation,
    request: &Request,
    netns: Option<&File>,
    silent: u32,
) -> Result<(), CniError> {
    match agent::ask(&invocation.node, request, netns) {
        Ok(Reply::Failed(error)) => Err(error),
        Ok(_) => Ok(()),
        Err(silence) => Err(silence.error(&invocation.node, silent)),
    }
}

fn attachment(invocation: &Invocation) -> Attachment {
    Attachment {
        network: invocation.kept_under(),
        container_id: invocation.environment.container_id.clone(),
        ifname: invocation.environment.ifname.clone(),
    }
}

/// The agent got the namespace, not its path.
fn with_path(mut error: CniError, invocation: &Invocation) -> CniError {
    if let Some(rest) = error.msg.strip_prefix("CNI_NETNS ") {
        error.msg = format!("CNI_NETNS `{}` {rest}", invocation.environment.netns);
    }
    error
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
    if theirs.dev() != ours.dev() {
        let msg = format!("CNI_NETNS `{path}` is no network namespace");
        return Err(CniError::new(code::INVALID_ENVIRONMENT, msg));
    }
    let same = (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino());
    if same && !invocation.environment.netns_override {
        let msg = format!("CNI_NETNS `{path}` is the node's own network namespace");
        return Err(CniError::new(code::INVALID_NETNS, msg)
            .details("set CNI_NETNS_OVERRIDE=1 if that is meant"));
    }
    Ok(netns)
}
