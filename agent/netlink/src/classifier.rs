//! Classifiers on a link. A classifier is attached in microseconds and removed with its link; attaching a TCX link would hold
//! the RTNL for a grace period, 16 ms each time. Pure.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcMessage, TcOption,
};
use nix::libc;

use crate::rtnl::Request;

/// One handle per priority: a program or a limit.
const HANDLE: u32 = 1;

/// The direction of the packets that a classifier sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Ingress of the host side: packets from the pod.
    Ingress,
    /// Egress of the host side: packets to the pod.
    Egress,
}

/// Creates the clsact qdisc; an existing one is no error.
pub fn add_clsact(ifindex: u32) -> Request {
    let message = clsact(ifindex);
    Request {
        tolerated: &[libc::EEXIST],
        ..Request::new(
            "add the clsact qdisc to the pod's link",
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }
}

/// Deletes the clsact qdisc with all classifiers.
pub fn remove_clsact(ifindex: u32) -> Request {
    let message = RouteNetlinkMessage::DelQueueDiscipline(clsact(ifindex));
    Request::new("delete the clsact qdisc of the pod's link", message, 0)
}

fn clsact(ifindex: u32) -> TcMessage {
    let mut message = TcMessage::with_index(ifindex.cast_signed());
    message.header.parent = TcHandle::CLSACT;
    message.header.handle = TcHandle {
        major: TcHandle::CLSACT.major,
        minor: 0,
    };
    message.attributes = vec![TcAttribute::Kind("clsact".to_owned())];
    message
}

/// The position of a classifier on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The link.
    pub ifindex: u32,
    /// The direction of the packets.
    pub side: Side,
    /// The priority among the classifiers of the side; lower ones run first.
    pub priority: u16,
}

/// Deletes the classifier at a position.
pub fn remove(position: Position) -> Request {
    let message = RouteNetlinkMessage::DelTrafficFilter(message(position));
    Request::new("delete a classifier of the pod's link", message, 0)
}

/// Attaches a program as classifier of all packets, replacing the one at this position.
pub fn filter(
    what: &'static str,
    position: Position,
    name: &str,
    program: BorrowedFd<'_>,
) -> Request {
    let fd = program.as_raw_fd().cast_unsigned();
    let mut message = message(position);
    message.attributes = vec![
        TcAttribute::Kind("bpf".to_owned()),
        TcAttribute::Options(vec![
            TcOption::Bpf(TcFilterBpfOption::ProgFd(fd)),
            TcOption::Bpf(TcFilterBpfOption::ProgName(name.to_owned())),
            TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
        ]),
    ];
    let message = RouteNetlinkMessage::NewTrafficFilter(message);
    Request::new(what, message, NLM_F_CREATE | NLM_F_REPLACE)
}

/// The header of a message about the classifier at a position.
fn message(position: Position) -> TcMessage {
    let Position {
        ifindex,
        side,
        priority,
    } = position;
    let mut message = TcMessage::with_index(ifindex.cast_signed());
    message.header.parent = TcHandle {
        major: TcHandle::CLSACT.major,
        minor: match side {
            Side::Ingress => TcHandle::MIN_INGRESS,
            Side::Egress => TcHandle::MIN_EGRESS,
        },
    };
    message.header.handle = TcHandle::from(HANDLE);
    let all = u16::try_from(libc::ETH_P_ALL).unwrap_or_default().to_be();
    message.header.info = u32::from(priority) << 16 | u32::from(all);
    message
}
