//! Socket load balancing: the decision of connect(2) and sendmsg(2), before there is a packet.
//!
//! A pod's socket has no source address yet. Decisions that depend on it (source ranges, session affinity), and those that
//! reject or drop, are left to the packet hooks, which answer as the network would. For the node's own sockets the address
//! is known.

use crate::decide::{Choice, Decision, Request, decide, may_be_frontend, needs_client_address};
use crate::service::{Route, Target};
use crate::tables::Tables;
use crate::verdict::Verdict;

/// A call of connect(2) or sendmsg(2). Its methods cost a helper call each, and are called only if the target can be a
/// frontend.
pub trait Caller {
    /// IP protocol number of the socket.
    fn protocol(&self) -> u8;
    /// The process is in the node's own network namespace; `netns` is that one's cookie.
    fn is_node(&self, netns: u64) -> bool;
    /// Random bits for the backend selection.
    fn hash(&self) -> u64;
}

/// The decision of a socket hook.
// Aligned to a whole word: functions return it on the stack, which BPF writes by aligned words only.
#[repr(align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The target stays.
    Unchanged(Unchanged),
    /// The target is replaced by the choice (DNAT); with a verdict if that is an activator.
    Translated(Effect, Option<Verdict>),
    /// The call fails with ECONNREFUSED.
    Refused(Verdict),
}

/// The reason why a target stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// The target is no frontend.
    NoFrontend,
    /// The decision depends on the client's address, which only the packet has.
    NeedsClientAddress,
    /// The packet hooks decide, since the connection is not forwarded to a backend, or would wake an app.
    LeftToPacket,
}

/// The write that belongs to a translated call, besides the translation itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None.
    None,
    /// The target is an app's VIP: a sleeping app is woken.
    Wake,
    /// The Service has session affinity: the choice is recorded for the client.
    RecordAffinity,
}

/// Decides a call. `request` has its target and port, and is filled with the rest; `choice` is as after [`decide`].
#[inline(always)]
pub fn decide_call<T: Tables, C: Caller>(
    tables: &T,
    caller: &C,
    request: &mut Request,
    choice: &mut Choice,
) -> Call {
    let Some(config) = tables.config() else {
        return Call::Unchanged(Unchanged::NoFrontend);
    };
    if !may_be_frontend(tables, config, &request.target) {
        return Call::Unchanged(Unchanged::NoFrontend);
    }
    request.protocol = caller.protocol();
    request.from_node = caller.is_node(config.netns);
    if request.from_node {
        request.source = *config.node_address_for(&request.target);
    } else if needs_client_address(tables, config, request) {
        return Call::Unchanged(Unchanged::NeedsClientAddress);
    }
    request.hash = caller.hash();
    match decide(tables, request, choice) {
        Decision::Forward(verdict) => {
            let effect = if !choice.service {
                let has_link = !request.from_node && config.unseen_pods == 0;
                if verdict.is_some() && has_link && takes_token(tables, request, choice) {
                    return Call::Unchanged(Unchanged::LeftToPacket);
                }
                Effect::Wake
            } else if choice.group != 0 {
                Effect::RecordAffinity
            } else {
                Effect::None
            };
            Call::Translated(effect, verdict)
        }
        Decision::Reject(verdict) if request.from_node => Call::Refused(verdict),
        _ => Call::Unchanged(Unchanged::LeftToPacket),
    }
}

/// Whether the call takes a token of the pod's wakes. Its bucket is that of its link, and its address may have no limit: both are
/// known of packets only.
#[inline(always)]
fn takes_token<T: Tables>(tables: &T, request: &Request, choice: &Choice) -> bool {
    let target = Target {
        port: request.port,
        protocol: request.protocol,
    };
    tables.takes_token(choice.slot, Route::unpack(choice.route), target)
}

#[cfg(test)]
mod tests;
