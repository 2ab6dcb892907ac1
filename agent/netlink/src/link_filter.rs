//! A socket filter for link notifications that drops those about pods' links: a new pod causes a dozen, each of which would be
//! copied, received and parsed during its ADD. Notifications of deleted links pass.

use std::io;
use std::os::fd::AsFd;

use nix::libc::{
    self, BPF_ABS, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX,
    BPF_MISC, BPF_RET, BPF_TAX, BPF_W,
};
use socket2::{SockFilter, SockRef};

/// Offset of a message's type in its header, in bytes like the offsets below.
const TYPE_AT: u32 = 4;
/// Offset of the address family in a message about a link.
const FAMILY_AT: u32 = 16;
/// Offset of its attributes.
const ATTRIBUTES_AT: u32 = 32;
/// Offset of an attribute's value, after length and type.
const VALUE_AT: u32 = 4;
/// Finds the attribute with type X, searching from offset A: `SKF_AD_OFF + SKF_AD_NLATTR` of `linux/filter.h`.
const FIND_ATTRIBUTE: u32 = (-0x1000_i32 + 12).cast_unsigned();
const WHOLE: u32 = u32::MAX;

/// Attaches the filter: messages about pods' links and bridge ports are dropped, except for deleted links.
pub fn skip_group(socket: &impl AsFd, group: u32) -> io::Result<()> {
    SockRef::from(socket).attach_filter(&program(group))
}

fn program(group: u32) -> [SockFilter; 13] {
    // A load converts from network byte order, but netlink messages are in host byte order.
    let new_link = u16::from_be_bytes(libc::RTM_NEWLINK.to_ne_bytes());
    let group = u32::from_be_bytes(group.to_ne_bytes());
    let bridge = u32::try_from(libc::AF_BRIDGE).unwrap_or_default();
    let does = |code, k| step(code, 0, 0, k);
    let is = |k: u32, (then, other)| step(BPF_JMP | BPF_JEQ | BPF_K, then, other, k);
    [
        does(BPF_LD | BPF_H | BPF_ABS, TYPE_AT),
        is(new_link.into(), (0, 9)),
        does(BPF_LD | BPF_B | BPF_ABS, FAMILY_AT),
        is(bridge, (8, 0)),
        does(BPF_LDX | BPF_IMM, libc::IFLA_GROUP.into()),
        does(BPF_LD | BPF_IMM, ATTRIBUTES_AT),
        does(BPF_LD | BPF_W | BPF_ABS, FIND_ATTRIBUTE),
        is(0, (3, 0)),
        does(BPF_MISC | BPF_TAX, 0),
        does(BPF_LD | BPF_W | BPF_IND, VALUE_AT),
        is(group, (1, 0)),
        does(BPF_RET | BPF_K, WHOLE),
        does(BPF_RET | BPF_K, 0),
    ]
}

/// One instruction of classic BPF; `then` and `other` are the jumps of a comparison, in instructions.
fn step(code: u32, then: u8, other: u8, k: u32) -> SockFilter {
    SockFilter::new(u16::try_from(code).unwrap_or_default(), then, other, k)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use netlink_packet_core::NetlinkPayload;
    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_route::link::LinkAttribute;
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::rtnl;

    const GROUP: u32 = 0x646d_0001;

    fn ip(words: &str) {
        let done = Command::new("ip").args(words.split(' ')).status();
        assert!(done.unwrap().success(), "ip {words}");
    }

    /// The links in received messages until the link `last` is deleted: whether each is new, and its name.
    fn receive(socket: &netlink_sys::Socket, last: &str) -> Vec<(bool, String)> {
        let mut heard = Vec::new();
        loop {
            for message in rtnl::receive(socket).unwrap() {
                let (is_new, link) = match message.payload {
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                        (true, link)
                    }
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => {
                        (false, link)
                    }
                    other => panic!("{other:?}"),
                };
                let names = link
                    .attributes
                    .into_iter()
                    .filter_map(|attribute| match attribute {
                        LinkAttribute::IfName(name) => Some((is_new, name)),
                        _ => None,
                    });
                heard.extend(names);
            }
            if heard.contains(&(false, last.to_owned())) {
                return heard;
            }
        }
    }

    #[test]
    fn only_deletions_pass_for_pod_links_and_everything_for_others() {
        let heard = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let socket = rtnl::socket().unwrap();
            socket.add_membership(libc::RTNLGRP_LINK).unwrap();
            skip_group(&socket, GROUP).unwrap();
            ip("link add other type bridge");
            ip(&format!(
                "link add pod group {GROUP} type veth peer name end"
            ));
            ip("link set pod master other up");
            ip("link set other mtu 1400");
            ip("link del pod");
            ip("link del other");
            receive(&socket, "other")
        });
        let heard = heard.join().unwrap();
        let count = |is_new: bool, name: &str| {
            let fits = |(new, of): &&(bool, String)| *new == is_new && of == name;
            heard.iter().filter(fits).count()
        };
        assert_eq!(count(true, "pod"), 0, "{heard:?}");
        assert!(
            count(false, "pod") > 0 && count(true, "other") >= 2,
            "{heard:?}"
        );
    }
}
