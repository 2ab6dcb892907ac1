//! TCP resets and ICMP errors that reject a packet, so that its sender does not wait for a timeout.

use crate::checksum;
use crate::packet::{ICMP, ICMPV6, LATER, Packet, TCP, v4_of};

/// The most bytes of a rejected packet that an error quotes.
///
/// More than either standard asks of a whole answer to be useful: IP header, extension headers, ports.
pub const QUOTE_MAX: usize = 128;

/// Bytes of the headers, options excluded.
const V4_LEN: u16 = 20;
const TCP_LEN: u16 = 20;
const ICMP_LEN: u16 = 8;

const HOP_LIMIT: u8 = 64;
const DONT_FRAGMENT: u8 = 0x40;
/// Precedence 6, which errors should have (RFC 1812 4.3.2.5).
const INTERNETWORK_CONTROL: u8 = 0xc0;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// The headers of an answer. Written in place, because BPF's stack takes no half-words at odd offsets.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rejection<const IP: usize, const UPPER: usize> {
    /// IP's.
    pub ip: [u8; IP],
    /// TCP's or ICMP's.
    pub upper: [u8; UPPER],
}

/// Memory for one answer of each kind.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rejections {
    /// See [`reset_v4`].
    pub reset_v4: Rejection<20, 20>,
    /// See [`reset_v6`].
    pub reset_v6: Rejection<40, 20>,
    /// See [`unreachable_v4`].
    pub unreachable_v4: Rejection<20, 8>,
    /// See [`unreachable_v6`].
    pub unreachable_v6: Rejection<40, 8>,
}

/// Whether a packet may be answered with an error or reset (RFC 1122 3.2.2, RFC 4443 2.4 e).
///
/// Of ICMP messages, which may be errors themselves, echo requests only; nor what resets a connection; nor what is not from
/// and for one host; nor a later fragment.
#[inline(always)]
pub const fn may_reject(packet: &Packet) -> bool {
    let is_multicast = if packet.v4 == 0 {
        packet.target[0] == 0xff
    } else {
        // 224.0.0.0/4, 240.0.0.0/4 and 255.255.255.255 are no host's addresses (RFC 1112 4).
        packet.target[12] >= 224
    };
    let has_no_sender = packet.is_martian() || packet.v4 == 1 && packet.source[12] >= 224;
    (packet.is_echo_request() || !matches!(packet.protocol, ICMP | ICMPV6))
        && packet.fragment != LATER
        && !is_multicast
        && !has_no_sender
        && !packet.resets()
}

/// IPv6 and ICMPv6 header of "port unreachable" (RFC 4443 3.1), from the packet's target to its source.
///
/// They precede the quoted bytes: the first `quote_len` of `quote`, whose rest is zero.
#[inline(always)]
pub fn unreachable_v6(
    packet: &Packet,
    quote: &[u8; QUOTE_MAX],
    quote_len: u16,
    answer: &mut Rejection<40, 8>,
) {
    let len = quote_len + ICMP_LEN;
    let pseudo = checksum::pseudo(&packet.target, &packet.source, len, ICMPV6);
    header_v6(packet, ICMPV6, len, &mut answer.ip);
    icmp([1, 4], pseudo, quote, &mut answer.upper);
}

/// IPv4 and ICMP header of "port unreachable" (RFC 792), from the packet's target to its source.
///
/// They precede the quoted bytes: the first `quote_len` of `quote`, whose rest is zero.
#[inline(always)]
pub fn unreachable_v4(
    packet: &Packet,
    quote: &[u8; QUOTE_MAX],
    quote_len: u16,
    answer: &mut Rejection<20, 8>,
) {
    let len = quote_len + ICMP_LEN;
    header_v4(packet, ICMP, len, &mut answer.ip);
    icmp([3, 3], 0, quote, &mut answer.upper);
}

/// A TCP RST over IPv6 from the packet's target to its source (RFC 9293 3.10.7.1).
///
/// `header` is the rejected segment's, `segment_len` its data in bytes, SYN and FIN counting as one each (SEG.LEN).
#[inline(always)]
pub fn reset_v6(
    packet: &Packet,
    header: &[u8; 20],
    segment_len: u32,
    answer: &mut Rejection<40, 20>,
) {
    header_v6(packet, TCP, TCP_LEN, &mut answer.ip);
    reset(packet, header, segment_len, &mut answer.upper);
}

/// A TCP RST over IPv4, like [`reset_v6`].
#[inline(always)]
pub fn reset_v4(
    packet: &Packet,
    header: &[u8; 20],
    segment_len: u32,
    answer: &mut Rejection<20, 20>,
) {
    header_v4(packet, TCP, TCP_LEN, &mut answer.ip);
    reset(packet, header, segment_len, &mut answer.upper);
}

#[inline(always)]
fn reset(packet: &Packet, header: &[u8; 20], segment_len: u32, answer: &mut [u8; 20]) {
    let [_, _, _, _, q0, q1, q2, q3, a0, a1, a2, a3, _, flags, ..] = *header;
    let (sequence, acknowledged, flags) = if flags & ACK == 0 {
        let end = u32::from_be_bytes([q0, q1, q2, q3]).wrapping_add(segment_len);
        ([0; 4], end.to_be_bytes(), RST | ACK)
    } else {
        ([a0, a1, a2, a3], [0; 4], RST)
    };
    *answer = [0; 20];
    answer[..2].copy_from_slice(&packet.target_port.to_be_bytes());
    answer[2..4].copy_from_slice(&packet.source_port.to_be_bytes());
    answer[4..8].copy_from_slice(&sequence);
    answer[8..12].copy_from_slice(&acknowledged);
    answer[12] = 5 << 4;
    answer[13] = flags;
    // For IPv4 too: mapping adds 0xffff for each address, which is zero in a one's complement sum.
    let pseudo = checksum::pseudo(&packet.target, &packet.source, TCP_LEN, TCP);
    let sum = checksum::finish(checksum::add(pseudo, answer));
    answer[16..18].copy_from_slice(&sum.to_be_bytes());
}

/// An ICMP header with type and code `kind`; `sum` is the part of its checksum besides itself and `quote`.
#[inline(always)]
fn icmp(kind: [u8; 2], sum: u64, quote: &[u8; QUOTE_MAX], header: &mut [u8; 8]) {
    let sum = checksum::finish(checksum::add(checksum::add(sum, &kind), quote)).to_be_bytes();
    *header = [kind[0], kind[1], sum[0], sum[1], 0, 0, 0, 0];
}

#[inline(always)]
fn header_v6(packet: &Packet, protocol: u8, payload_len: u16, header: &mut [u8; 40]) {
    let [len_0, len_1] = payload_len.to_be_bytes();
    let first = [0x60, 0, 0, 0, len_0, len_1, protocol, HOP_LIMIT];
    header[..8].copy_from_slice(&first);
    header[8..24].copy_from_slice(&packet.target);
    header[24..].copy_from_slice(&packet.source);
}

#[inline(always)]
fn header_v4(packet: &Packet, protocol: u8, payload_len: u16, header: &mut [u8; 20]) {
    let service = if protocol == ICMP {
        INTERNETWORK_CONTROL
    } else {
        0
    };
    let [len_0, len_1] = (payload_len + V4_LEN).to_be_bytes();
    // Never fragmented, it needs no identification (RFC 6864 4.1).
    let first = [0x45, service, len_0, len_1, 0, 0, DONT_FRAGMENT, 0];
    *header = [0; 20];
    header[..8].copy_from_slice(&first);
    header[8] = HOP_LIMIT;
    header[9] = protocol;
    header[12..16].copy_from_slice(&v4_of(&packet.target));
    header[16..].copy_from_slice(&v4_of(&packet.source));
    let sum = checksum::finish(checksum::add(0, header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests;
