//! Steady packets: those that change nothing about their connection.
//!
//! The uplink's XDP program sends them on by the connection's entries alone, and writes nothing to these but the time of the last packet. All other
//! packets are the classifier's, which decides new connections and keeps the entries.

use crate::checksum;
use crate::flow::{BY_HOST, FORWARDED, Flow, MASQUERADED, OPENING, REPLY, REVOKED};
use crate::packet::{L3, L4, L4_OF_V4, Packet, TCP, UDP, V4_CHECKSUM, v4_of};
use crate::stage::Stage;

/// Bytes of the headers up to the end of the transport checksum, of frames whose packets are plain: TCP over IPv4, UDP, and over IPv6.
pub const TCP4: usize = L4_OF_V4 + TCP_CHECKSUM_END;
/// See [`TCP4`].
pub const UDP4: usize = L4_OF_V4 + UDP_CHECKSUM_END;
/// See [`TCP4`].
pub const TCP6: usize = L4 + TCP_CHECKSUM_END;
/// See [`TCP4`].
pub const UDP6: usize = L4 + UDP_CHECKSUM_END;

/// The ends of the checksums in the headers of TCP and UDP.
const TCP_CHECKSUM_END: usize = 18;
const UDP_CHECKSUM_END: usize = 8;
/// The result 0 of UDP's checksum, for which 0 itself means "none" (RFC 768).
const UDP_ZERO: u16 = 0xffff;

/// Whether a packet changes nothing in the entry of its flow but the time, as far as that entry shows.
#[inline(always)]
pub const fn is_steady(packet: &Packet, flow: &Flow) -> bool {
    let is_known = matches!(packet.protocol, TCP | UDP) && packet.is_plain();
    let ends = packet.opens() || packet.accepts() || packet.closes();
    is_known
        && packet.hop_limit > 1
        && !ends
        && !flow.is(REVOKED | BY_HOST)
        && !may_move(packet, flow)
        && keeps_stage(packet, flow)
}

/// Whether the flow is a client's whose reply entry has the time of both sides' packets. A packet that does not change the stage of its own entry does
/// not change that one's either: the classifier advances both at once.
#[inline(always)]
pub const fn is_masqueraded_request(flow: &Flow) -> bool {
    flow.is(MASQUERADED) && !flow.is(REPLY)
}

/// Whether the opposite entry is to be [found](crate::found), too.
#[inline(always)]
pub const fn needs_other(packet: &Packet, flow: &Flow) -> bool {
    is_masqueraded_request(flow) || packet.pushes()
}

/// Whether a packet may move an opening flow to the established ones. A client's datagram does not, unless no answer is seen here.
#[inline(always)]
const fn may_move(packet: &Packet, flow: &Flow) -> bool {
    flow.is(OPENING) && (packet.protocol != UDP || flow.is(REPLY | FORWARDED))
}

/// Whether an entry keeps its stage.
#[inline(always)]
const fn keeps_stage(packet: &Packet, flow: &Flow) -> bool {
    let stage = Stage(flow.stage);
    let after = if flow.is(REPLY) {
        stage.after_backend(packet)
    } else {
        stage.after_client(packet)
    };
    after.0 == stage.0
}

/// Gives the headers of a plain packet the ends of its flow, unless it is forwarded as it is, and one hop less; with their checksums. `head`
/// is the frame up to the end of the transport checksum: one of [`TCP4`] to [`UDP6`] bytes, by the packet.
#[inline(always)]
pub fn translate<const N: usize>(head: &mut [u8; N], packet: &Packet, flow: &Flow) {
    let is_v4 = N == TCP4 || N == UDP4;
    let l4 = if is_v4 { L4_OF_V4 } else { L4 };
    let left = packet.hop_limit - 1;
    let (new, old) = if flow.is(FORWARDED) {
        (0, 0)
    } else {
        (addresses(flow), addresses_of(packet))
    };
    if is_v4 {
        let hops = |hops: u8| u64::from(u16::from_ne_bytes([hops, packet.protocol]));
        put_sum(
            head,
            L3 + V4_CHECKSUM,
            new + hops(left),
            old + hops(packet.hop_limit),
        );
        head[L3 + 8] = left;
    } else {
        head[L3 + 7] = left;
    }
    if flow.is(FORWARDED) {
        return;
    }
    let port = |port: u16| u64::from(port.to_be());
    let is_udp = N == UDP4 || N == UDP6;
    let is_summed = !is_udp || head[N - 2] != 0 || head[N - 1] != 0;
    if is_summed {
        let new = new + port(flow.source_port) + port(flow.target_port);
        let old = old + port(packet.source_port) + port(packet.target_port);
        put_sum(head, N - 2, new, old);
        if is_udp && head[N - 2] == 0 && head[N - 1] == 0 {
            put(head, N - 2, &UDP_ZERO.to_ne_bytes());
        }
    }
    if is_v4 {
        put(head, L3 + 12, &v4_of(&flow.source));
        put(head, L3 + 16, &v4_of(&flow.target));
    } else {
        put_address(head, L3 + 8, &flow.source);
        put_address(head, L3 + 24, &flow.target);
    }
    put(head, l4, &flow.source_port.to_be_bytes());
    put(head, l4 + 2, &flow.target_port.to_be_bytes());
}

/// The sum of both addresses; what maps IPv4 is the same in all, and cancels out.
#[inline(always)]
fn addresses(flow: &Flow) -> u64 {
    checksum::add(checksum::add(0, &flow.source), &flow.target)
}

#[inline(always)]
fn addresses_of(packet: &Packet) -> u64 {
    checksum::add(checksum::add(0, &packet.source), &packet.target)
}

/// Replaces words of what a checksum covers, by their sums (RFC 1624, 3).
#[inline(always)]
fn put_sum<const N: usize>(head: &mut [u8; N], at: usize, new: u64, old: u64) {
    /// 0 in one's complement, and more than any sum of the words of some headers.
    const ZERO: u64 = 0xffff << 32;
    let before = u64::from(!u16::from_ne_bytes([head[at], head[at + 1]]));
    let after = before + new + (ZERO - old);
    put(head, at, &checksum::finish(after).to_be_bytes());
}

/// Stores an address at a constant place, in two words: BPF copies longer arrays byte by byte.
#[inline(always)]
fn put_address<const N: usize>(head: &mut [u8; N], at: usize, address: &[u8; 16]) {
    let (words, _) = address.as_chunks::<8>();
    put(head, at, &words[0]);
    put(head, at + 8, &words[1]);
}

/// Stores bytes at a constant place.
#[inline(always)]
fn put<const N: usize, const M: usize>(head: &mut [u8; N], at: usize, bytes: &[u8; M]) {
    head[at..at + M].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests;
