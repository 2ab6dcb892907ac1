//! One function per CNI command: the request to the agent, and the outcome when the agent does not reply.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use dormouse_cni::error::{CniError, code};
use dormouse_cni::invocation::Role;
use dormouse_cni::message::{Attachment, Reply, Request};
use dormouse_cni::object::Object;
use dormouse_cni::pending::PendingDel;
use dormouse_cni::result::AddResult;
use dormouse_cni::{Invocation, render};

use crate::agent::{self, CallError};

pub(crate) fn add(invocation: &Invocation) -> Result<Object, CniError> {
    let netns = open_netns(invocation)?;
    let (attachment, wanted) = (attachment(invocation), invocation.wanted.clone());
    let request = match invocation.role {
        Role::Main => Request::Add { attachment, wanted },
        Role::Ipam => Request::Reserve { attachment, wanted },
    };
    let written = match agent::call(&invocation.node, &request, Some(&netns)) {
        Ok(Reply::Wired(wired)) => render::wired(invocation, &wired),
        Ok(Reply::Reserved(reserved)) => render::reserved(invocation, &reserved),
        Ok(Reply::Failed(error)) => return Err(with_path(error, invocation)),
        Ok(Reply::Done) => {
            let msg = "the agent's reply to ADD has no result";
            return Err(CniError::new(code::IO, msg));
        }
        Err(error) => return Err(error.into_cni(&invocation.node, code::TRY_AGAIN)),
    };
    written.map_err(|error| {
        CniError::new(code::IO, "failed to write the result of ADD").details(error.to_string())
    })
}

/// With the agent down, DEL succeeds once the deletion is stored durably for the agent's next start: a failing DEL would
/// block the pod's removal.
pub(crate) fn del(invocation: &Invocation) -> Result<(), CniError> {
    let attachment = attachment(invocation);
    let request = Request::Del {
        attachment: attachment.clone(),
    };
    match agent::call(&invocation.node, &request, None) {
        Ok(Reply::Failed(error)) => Err(error),
        Ok(_) => Ok(()),
        Err(CallError::Down(_)) => PendingDel::now(attachment)
            .and_then(|pending| pending.write(&invocation.node.state_dir))
            .map_err(|error| {
                let folder = invocation.node.state_dir.display();
                let msg = format!("the agent is down and the DEL cannot be stored below {folder}");
                CniError::new(code::TRY_AGAIN, msg).details(error.to_string())
            }),
        Err(error) => Err(error.into_cni(&invocation.node, code::TRY_AGAIN)),
    }
}

pub(crate) fn check(invocation: &Invocation) -> Result<(), CniError> {
    let netns = open_netns(invocation)?;
    let previous = invocation.previous.as_ref();
    let ifname = &invocation.environment.ifname;
    let request = Request::Check {
        attachment: attachment(invocation),
        addresses: previous.map(AddResult::addresses).unwrap_or_default(),
        mac: previous.and_then(|previous| previous.mac(ifname)),
    };
    without_result(invocation, &request, Some(&netns), code::TRY_AGAIN)
}

pub(crate) fn status(invocation: &Invocation) -> Result<(), CniError> {
    without_result(invocation, &Request::Status {}, None, code::NOT_AVAILABLE)
}

pub(crate) fn gc(invocation: &Invocation) -> Result<(), CniError> {
    let request = Request::Gc {
        network: invocation.attachment_network(),
        valid: invocation.valid.clone(),
    };
    without_result(invocation, &request, None, code::TRY_AGAIN)
}

fn without_result(
    invocation: &Invocation,
    request: &Request,
    netns: Option<&File>,
    unavailable_code: u32,
) -> Result<(), CniError> {
    match agent::call(&invocation.node, request, netns) {
        Ok(Reply::Failed(error)) => Err(error),
        Ok(_) => Ok(()),
        Err(error) => Err(error.into_cni(&invocation.node, unavailable_code)),
    }
}

fn attachment(invocation: &Invocation) -> Attachment {
    Attachment {
        network: invocation.attachment_network(),
        container_id: invocation.environment.container_id.clone(),
        ifname: invocation.environment.ifname.clone(),
    }
}

/// Adds the namespace's path to the message: the agent received a descriptor and does not know the path.
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
    let wanted = netns.metadata().map_err(error)?;
    let own = std::fs::metadata("/proc/self/ns/net").map_err(error)?;
    if wanted.dev() != own.dev() {
        let msg = format!("CNI_NETNS `{path}` is not a network namespace");
        return Err(CniError::new(code::INVALID_ENVIRONMENT, msg));
    }
    let same = (wanted.dev(), wanted.ino()) == (own.dev(), own.ino());
    if same && !invocation.environment.netns_override {
        let msg = format!("CNI_NETNS `{path}` is the node's own network namespace");
        return Err(CniError::new(code::INVALID_NETNS, msg)
            .details("set CNI_NETNS_OVERRIDE=1 to wire it anyway"));
    }
    Ok(netns)
}
