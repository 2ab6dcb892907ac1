//! Conversion of the pod network's errors to CNI errors. Pure.

use dormouse_agent_ipam::{AllocateError, LeasesError};
use dormouse_agent_pod::NetworkError;
use dormouse_cni::error::{CniError, code};
use dormouse_cni::message::{Reply, Request};
use serde_json::Value;

use crate::host_ports::HostPortError;

/// The request's name, as label of the counters.
pub(super) fn command(request: &Request) -> &'static str {
    match request {
        Request::Add { .. } | Request::Reserve { .. } => "ADD",
        Request::Del { .. } => "DEL",
        Request::Check { .. } => "CHECK",
        Request::Status {} => "STATUS",
        Request::Gc { .. } => "GC",
    }
}

/// A reply without a result.
pub(super) fn reply(done: Result<(), NetworkError>) -> Reply {
    match done {
        Ok(()) => Reply::Done,
        Err(reason) => Reply::Failed(error(&reason)),
    }
}

/// Why a pod did not get its ports of the node.
pub(super) fn ports_error(error: &HostPortError, ports: &Value) -> CniError {
    let key = "runtimeConfig.portMappings";
    match error {
        HostPortError::NoServices => CniError::unsupported(key, ports).details(
            "ports of a node are served as those of Services: run the agent with a source of Services; or connect to the pod's address, \
             or publish it by a Service of type NodePort on another node; or chain the portmap plugin, and move the capability from this plugin to it",
        ),
        HostPortError::Family(_) => CniError::unsupported(key, ports).details(error.to_string()),
        HostPortError::Record(source) => {
            CniError::new(code::NODE, error.to_string()).details(source.to_string())
        }
        // Another pod ends, or an address comes: the runtime tries again.
        HostPortError::Late
        | HostPortError::Gone
        | HostPortError::Elsewhere(_)
        | HostPortError::Taken { .. }
        | HostPortError::NotProgrammed(_) => CniError::new(code::TRY_AGAIN, error.to_string()),
    }
}

/// STATUS, and ADD, before Services are in force for the first time.
pub(super) fn not_in_force(code: u32) -> CniError {
    let msg = "Services are not in force yet on this node";
    CniError::new(code, msg).details("the agent has not received all of them; see its log")
}

/// The CNI error code; 0 is success.
pub(super) fn code_of(reply: &Reply) -> u32 {
    match reply {
        Reply::Done | Reply::Wired(_) | Reply::Reserved(_) => 0,
        Reply::Failed(error) => error.code,
    }
}

/// The CNI error object.
pub(super) fn error(error: &NetworkError) -> CniError {
    let code = match error {
        NetworkError::Leases(LeasesError::Allocate(reason)) => match reason {
            AllocateError::Held { .. } => code::EXISTS,
            AllocateError::Quarantined { .. }
            | AllocateError::Exhausted { .. }
            | AllocateError::CohortExhausted { .. }
            | AllocateError::Ipv4Exhausted { .. } => code::TRY_AGAIN,
            _ => code::INVALID_CONFIG,
        },
        NetworkError::InterfaceExists(_) => code::EXISTS,
        NetworkError::NoNetns(_) | NetworkError::MissingNetns => code::INVALID_ENVIRONMENT,
        NetworkError::OwnNetns => code::INVALID_NETNS,
        NetworkError::Busy(_) => code::TRY_AGAIN,
        NetworkError::NotHeld(_) => code::UNKNOWN_CONTAINER,
        NetworkError::Full(_) => code::NOT_AVAILABLE,
        NetworkError::BridgeDeleted(_)
        | NetworkError::BridgeDown(_)
        | NetworkError::NoUplink(_)
        | NetworkError::UplinkDown(_) => code::NOT_AVAILABLE_LIMITED,
        NetworkError::Differs { .. } => code::DIFFERS,
        _ => code::NODE,
    };
    let msg = error.to_string();
    let chain = error.chain();
    let details = chain
        .strip_prefix(&msg)
        .unwrap_or_default()
        .trim_start_matches(": ");
    CniError::new(code, msg).details(details)
}
