//! Classifiers on a link. A program that is a classifier is attached in microseconds and goes with its link; a TCX link
//! would make the kernel hold its lock for a grace period, 16 ms, each time. Pure.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcMessage, TcOption,
};
use nix::libc;

use crate::rtnl::Request;

/// The filters of one priority are one program or one limit.
const HANDLE: u32 = 1;

/// Which packets a classifier sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the link receives: from the pod.
    Ingress,
    /// What the link sends: to the pod.
    Egress,
}

/// The place for classifiers on a link; one that is there already is no error.
pub fn place(ifindex: u32) -> Request {
    let message = clsact(ifindex);
    Request {
        tolerated: &[libc::EEXIST],
        ..Request::new(
            "make room for classifiers on the pod's link",
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }
}

/// Takes the place for classifiers away, with all of them.
pub fn displace(ifindex: u32) -> Request {
    let message = RouteNetlinkMessage::DelQueueDiscipline(clsact(ifindex));
    Request::new("take the classifiers off the pod's link", message, 0)
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

/// Takes the classifier of this side and priority away.
pub fn remove(ifindex: u32, at: (Side, u16)) -> Request {
    let message = RouteNetlinkMessage::DelTrafficFilter(of(ifindex, at));
    Request::new("take a classifier off the pod's link", message, 0)
}

/// A program as the classifier of all packets, in the place of the one that has this side and priority; lower ones come
/// first.
pub fn filter(
    what: &'static str,
    ifindex: u32,
    at: (Side, u16),
    (name, program): (&str, BorrowedFd<'_>),
) -> Request {
    let fd = program.as_raw_fd().cast_unsigned();
    let mut message = of(ifindex, at);
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

/// The filter of this side and priority.
fn of(ifindex: u32, (side, priority): (Side, u16)) -> TcMessage {
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
