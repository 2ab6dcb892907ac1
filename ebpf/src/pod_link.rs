//! What a pod sends to its own link: ARP, neighbour discovery, multicast reports. A pod's only neighbour is its gateway, and
//! both have permanent neighbour entries, so that the node needs none of it.
//!
//! Requests for the gateway are answered, for pods that lose their entry or run a kernel of their own; all else ends here. So
//! nothing that a pod sends creates entries in the node's neighbour tables but one: the pod's own link-local address.

use crate::maps::join;
use crate::ndp::{
    ADVERTISEMENT, REDIRECT, ROUTER_ADVERTISEMENT, SOLICITATION, Solicitation, is_link_local,
};
use crate::packet::{Aligned, Frame, ICMPV6, L3, Packet, Read, WHOLE, mapped};
use crate::verdict::Verdict;

/// The default gateway of each pod: its bridge's link-local address.
pub const GATEWAY: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// The IPv4 default gateway: link-local, so that it takes no address of the node's range.
pub const GATEWAY4: [u8; 4] = [169, 254, 1, 1];
/// Link-layer address of all bridges: constant, so that pods have a permanent neighbour entry for the gateway.
pub const GATEWAY_MAC: [u8; 6] = [0x02, 0xd0, 0, 0, 0, 1];

/// The first bytes of an ARP request and of its reply: Ethernet, IPv4, the lengths of their addresses, the operation.
const ARP_REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
/// See [`ARP_REQUEST`].
pub const ARP_REPLY: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 2];
/// Offset of the sender's link-layer address in an ARP message; its IPv4 address follows.
pub const ARP_SENDER: usize = 8;
/// Offset of the target's.
pub const ARP_TARGET: usize = 18;
/// The gateway's two addresses, as an ARP message has them.
pub const ARP_GATEWAY: [u8; 10] = [0x02, 0xd0, 0, 0, 0, 1, 169, 254, 1, 1];
const UNSPECIFIED: [u8; 16] = [0; 16];

/// The addresses of the pod behind a link.
pub trait Owner {
    /// Whether the address is one of the pod's: of the node's prefix, or IPv4, mapped.
    fn owns(&self, address: &[u8; 16]) -> bool;
    /// The node prefix; the low 32 bits are zero.
    fn node_prefix(&self) -> &[u8; 16];

    /// The same with the pod's link-local address, which has the low 32 bits of its IPv6 address.
    #[inline(always)]
    fn owns_here(&self, address: &[u8; 16]) -> bool {
        if is_link_local(address) {
            let [upper @ .., a, b, c, d] = *address;
            let [prefix @ .., _, _, _, _] = GATEWAY;
            let global = Aligned(join(self.node_prefix(), [a, b, c, d]));
            return upper == prefix && self.owns(&global.0);
        }
        self.owns(address)
    }
}

/// The judgement on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It may go on, to the node or to other hosts.
    Pass,
    /// A solicitation for the gateway, to be answered.
    Answer,
    /// It is dropped.
    Drop(Verdict),
}

/// Whether a packet is a message between the nodes of one link, by the last of its headers: neighbour discovery (RFC 4861,
/// 3122, 3971), multicast listeners and routers (RFC 2710, 3810, 4286).
#[inline(always)]
pub const fn is_of_link(packet: &Packet) -> bool {
    packet.v4 == 0
        && packet.protocol == ICMPV6
        && matches!(packet.flags, 130..=137 | 141..=143 | 148 | 149 | 151..=153)
}

/// Whether packets to the address stay on the link, if they come from a link-local address.
#[inline(always)]
const fn is_of_link_scope(target: &[u8; 16]) -> bool {
    is_link_local(target) || target[0] == 0xff
}

/// Judges an IPv6 packet whose source is not one of the pod's addresses, or that [`is_of_link`]. `solicited` is the same
/// packet, if it is a valid solicitation.
#[inline(always)]
pub fn judge<F: Frame>(
    frame: &F,
    (read, packet): (Read, &Packet),
    pod: &impl Owner,
    solicited: Option<&Solicitation>,
) -> Judgement {
    let own = pod.owns_here(&packet.source);
    if !is_of_link(packet) {
        // Connections do not cross the link with link-local addresses, and nothing from such an address leaves it (RFC 4291 2.5.6).
        let leaves = is_link_local(&packet.source) && !is_of_link_scope(&packet.target);
        return if own && !leaves && matches!(read, Read::Other) {
            Judgement::Pass
        } else {
            Judgement::Drop(Verdict::DroppedSpoofed)
        };
    }
    match packet.flags {
        SOLICITATION => {
            // The answer goes back by this link and changes no table, so any address of the link may ask.
            let may_ask = own || is_link_local(&packet.source) || packet.source == UNSPECIFIED;
            match solicited {
                Some(Solicitation {
                    target: GATEWAY, ..
                }) if may_ask => Judgement::Answer,
                _ => Judgement::Drop(Verdict::DroppedNeighbor),
            }
        }
        ADVERTISEMENT if own && packet.fragment == WHOLE && packet.routed == 0 => {
            match frame.load::<16>(packet.l4 as usize + 8) {
                Some(target) if pod.owns_here(&target.0) => Judgement::Pass,
                _ => Judgement::Drop(Verdict::DroppedNeighbor),
            }
        }
        ADVERTISEMENT | ROUTER_ADVERTISEMENT | REDIRECT => {
            Judgement::Drop(Verdict::DroppedNeighbor)
        }
        _ => Judgement::Drop(Verdict::DroppedLink),
    }
}

/// Whether an ARP message (RFC 826) is the pod's request for its gateway.
#[inline(always)]
pub fn asks_for_gateway<F: Frame>(frame: &F, pod: &impl Owner) -> bool {
    let Some(Aligned(head)) = frame.load::<8>(L3) else {
        return false;
    };
    let Some(Aligned(target)) = frame.load::<4>(L3 + ARP_TARGET + 6) else {
        return false;
    };
    let Some(Aligned(sender)) = frame.load::<4>(L3 + ARP_SENDER + 6) else {
        return false;
    };
    head == ARP_REQUEST && target == GATEWAY4 && pod.owns(&Aligned(mapped(sender)).0)
}

#[cfg(test)]
mod tests;
