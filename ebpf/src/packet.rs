//! Packet parsing: reads the headers of a frame, never past its end.
//!
//! Malformed packets are rejected here, so that no later code has to check a length again.

mod fragment;
mod upper;
mod v4;
mod v6;

pub use fragment::{FIRST, LATER, WHOLE};
pub use v6::EXTENSIONS_MAX;

/// Offset of the network header in an Ethernet frame.
pub const L3: usize = 14;
/// Offset of the transport header behind an IPv6 header without extension headers.
pub const L4: usize = L3 + 40;
/// Offset of the transport header behind an IPv4 header without options.
pub(crate) const L4_OF_V4: usize = L3 + 20;

/// Offset of the checksum in an IPv4 header (RFC 791 3.1).
pub const V4_CHECKSUM: usize = 10;

/// The EtherType of IPv4.
pub const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// The EtherType of ARP (RFC 826).
pub const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
/// The EtherType of IPv6.
pub const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// The EtherType of a frame with a VLAN tag (IEEE 802.1Q).
pub const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0x00];
/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// IP protocol number of SCTP.
pub const SCTP: u8 = 132;

/// Offset of the EtherType in an Ethernet frame, behind both link-layer addresses.
pub const ETHERTYPE: usize = 12;

/// Bytes of a frame, aligned because BPF reads whole words from its stack only if they are aligned.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct Aligned<const N: usize>(pub [u8; N]);

/// An Ethernet frame with checked access to its bytes.
pub trait Frame {
    /// The length in bytes.
    fn length(&self) -> usize;
    /// The EtherType.
    fn ethertype(&self) -> Option<[u8; 2]>;
    /// The `N` bytes at `offset`; none past its end.
    fn load<const N: usize>(&self, offset: usize) -> Option<Aligned<N>>;
}

impl Frame for &[u8] {
    fn length(&self) -> usize {
        self.len()
    }

    fn ethertype(&self) -> Option<[u8; 2]> {
        self.load(ETHERTYPE).map(|bytes| bytes.0)
    }

    fn load<const N: usize>(&self, offset: usize) -> Option<Aligned<N>> {
        self.get(offset..)?.first_chunk().copied().map(Aligned)
    }
}

/// The parsed headers. IPv4 addresses are IPv4-mapped (`::ffff:a.b.c.d`, RFC 4291 2.5.5.2).
// Aligned, because BPF copies addresses in pieces as large as their alignment.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The source address.
    pub source: [u8; 16],
    /// The destination address.
    pub target: [u8; 16],
    /// The source port; 0 without a transport header.
    pub source_port: u16,
    /// The destination port; 0 without a transport header.
    pub target_port: u16,
    /// The offset of the transport (or ICMP) header in the frame; 0: a later fragment, which has none.
    pub l4: u16,
    /// Bytes of the IP packet with its header, by that header; at most 65 535, although an IPv6 packet may be longer.
    pub len: u16,
    /// Identification of the fragments of one packet; only meaningful if `fragment` is not [`WHOLE`].
    pub id: u32,
    /// TCP's flag byte; SCTP's first chunk type; ICMP's type; 0 otherwise, and in a quoted packet.
    pub flags: u8,
    /// 1: IPv4.
    pub v4: u8,
    /// The protocol of the payload, behind all extension headers.
    ///
    /// In a later IPv6 fragment it may be an extension header's number: the first of what was fragmented.
    pub protocol: u8,
    /// The hop limit, or IPv4's time to live.
    pub hop_limit: u8,
    /// [`WHOLE`], [`FIRST`] or [`LATER`].
    pub fragment: u16,
    /// 1: a routing header has segments left, so `target` is not the final one, which ports and checksum belong to.
    pub routed: u16,
    /// Zero, in place of padding: equal packets are equal bytes.
    pub pad: u32,
}

const _: () = assert!(size_of::<Packet>() == 56, "no padding");

/// The result of parsing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// TCP, UDP or SCTP, whole or the first fragment: ports are read.
    Transport,
    /// A later fragment of TCP, UDP or SCTP: no ports.
    Fragment,
    /// An ICMP or ICMPv6 *error*; `l4` is its header; it quotes the packet that begins at `l4 + 8`.
    Error,
    /// A frame that is never translated: ARP, NDP, echo, other protocols, source routes, non-IP.
    Other,
    /// A malformed packet: truncated, with wrong lengths, or with forged headers.
    Malformed,
}

/// The place of an IP packet's payload in the frame.
#[derive(Clone, Copy)]
struct Payload {
    /// The first byte.
    at: usize,
    /// The byte after the last one, by the IP header.
    end: usize,
    /// The fragment's offset in the unfragmented packet's payload, in bytes.
    offset: usize,
}

/// TCP's flag bits (RFC 9293 3.1).
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Types of ICMP and ICMPv6.
const ECHO_REQUEST: u8 = 8;
const ECHO_REQUEST_V6: u8 = 128;

/// SCTP's chunk types (RFC 9260 3.2).
const INIT: u8 = 1;
const ABORT: u8 = 6;
const SHUTDOWN_COMPLETE: u8 = 14;

impl Packet {
    /// It opens a new connection: a TCP SYN without ACK, an SCTP INIT.
    #[inline(always)]
    pub const fn opens(&self) -> bool {
        match self.protocol {
            TCP => self.flags & (SYN | ACK) == SYN,
            SCTP => self.flags == INIT,
            _ => false,
        }
    }

    /// It accepts a new TCP connection: a SYN with ACK.
    #[inline(always)]
    pub const fn accepts(&self) -> bool {
        self.protocol == TCP && self.flags & (SYN | ACK) == SYN | ACK
    }

    /// It has an acknowledgement number.
    #[inline(always)]
    pub const fn acknowledges(&self) -> bool {
        self.protocol == TCP && self.flags & ACK != 0
    }

    /// It may be the first packet of a flow: any UDP packet, or one that opens a connection.
    #[inline(always)]
    pub const fn begins(&self) -> bool {
        self.protocol == UDP || self.opens()
    }

    /// It ends what an application sent in one go: a TCP segment with PSH (RFC 9293 3.9.1.2). The other end may answer next.
    #[inline(always)]
    pub const fn pushes(&self) -> bool {
        self.protocol == TCP && self.flags & PSH != 0
    }

    /// It aborts a connection: a TCP RST, an SCTP ABORT.
    #[inline(always)]
    pub const fn resets(&self) -> bool {
        match self.protocol {
            TCP => self.flags & RST != 0,
            SCTP => self.flags == ABORT,
            _ => false,
        }
    }

    /// It ends a connection, in one direction at least: a TCP FIN or RST, an SCTP ABORT or SHUTDOWN COMPLETE.
    #[inline(always)]
    pub const fn closes(&self) -> bool {
        match self.protocol {
            TCP => self.flags & (FIN | RST) != 0,
            SCTP => matches!(self.flags, ABORT | SHUTDOWN_COMPLETE),
            _ => false,
        }
    }

    /// It is an echo request (RFC 792, RFC 4443 4.1).
    #[inline(always)]
    pub const fn is_echo_request(&self) -> bool {
        match self.protocol {
            ICMP if self.v4 == 1 => self.flags == ECHO_REQUEST,
            ICMPV6 if self.v4 == 0 => self.flags == ECHO_REQUEST_V6,
            _ => false,
        }
    }

    /// Routers have nothing to process in it but the IP header: it has no options and is not a fragment.
    #[inline(always)]
    pub const fn is_plain(&self) -> bool {
        let header_end = if self.v4 == 1 { L4_OF_V4 } else { L4 };
        self.l4 as usize == header_end && self.fragment == WHOLE
    }

    /// One of its addresses never crosses a network (RFC 6890; RFC 1812 5.3.7).
    ///
    /// IPv6's `::` is a legal source of duplicate address detection only, which is ICMPv6 and so [`Read::Other`].
    #[inline(always)]
    pub const fn is_martian(&self) -> bool {
        if self.v4 == 0 {
            self.source[0] == 0xff
                || v6::is_this_host(&self.source)
                || v6::is_this_host(&self.target)
        } else {
            let (source, target) = (v4_of(&self.source), v4_of(&self.target));
            v4::is_no_source(source) && !v4::asks_for_address(source, target)
                || v4::is_this_host(target)
        }
    }
}

/// An IPv4 address as an IPv4-mapped IPv6 address (RFC 4291 2.5.5.2).
#[inline(always)]
pub const fn mapped(v4: [u8; 4]) -> [u8; 16] {
    // By words: BPF clears bytes in a loop.
    (0xffff << 32 | u32::from_be_bytes(v4) as u128).to_be_bytes()
}

/// Whether `address` is an IPv4 address, IPv4-mapped.
#[inline(always)]
pub const fn is_v4(address: &[u8; 16]) -> bool {
    u128::from_be_bytes(*address) >> 32 == 0xffff
}

/// The IPv4 address that `address` maps.
#[inline(always)]
pub const fn v4_of(address: &[u8; 16]) -> [u8; 4] {
    let [.., a, b, c, d] = *address;
    [a, b, c, d]
}

/// Whether an IPv4 address is link-local (RFC 3927): 169.254.0.0/16.
#[inline(always)]
pub const fn is_link_local4(address: [u8; 4]) -> bool {
    matches!(address, [169, 254, ..])
}

/// Parses an Ethernet frame.
///
/// With [`Read::Other`] and [`Read::Malformed`], `packet` may be filled in part; without an IP header it is all zero.
// Not inlined, unlike others: the optimiser would split `packet` into more variables than BPF has registers, and the
// verifier would check the code that follows once for each path through this function.
#[inline(never)]
pub fn read<F: Frame>(frame: &F, packet: &mut Packet) -> Read {
    let payload = match frame.ethertype() {
        Some(ETHERTYPE_IPV4) => v4::read(frame, L3, packet),
        Some(ETHERTYPE_IPV6) => v6::read(frame, L3, packet),
        Some(_) => without_header(packet, Read::Other),
        None => without_header(packet, Read::Malformed),
    };
    match payload {
        // Checked once, so that no later code has to check that the frame holds what its headers say.
        Ok(payload) if payload.end <= frame.length() => upper::read(frame, payload, packet),
        Ok(_) => Read::Malformed,
        Err(read) => read,
    }
}

/// The result for a frame without an IP header that can be parsed.
#[inline(always)]
fn without_header(packet: &mut Packet, read: Read) -> Result<Payload, Read> {
    *packet = Packet::default();
    Err(read)
}

/// Parses the packet that an ICMP error quotes, with its IP header at offset `at`: false if it has no ports.
///
/// Only 8 bytes of its transport header need to be there (RFC 792; RFC 4443 3), so its flags are not read.
// Not inlined for the same reasons as `read`.
#[inline(never)]
pub fn quoted<F: Frame>(frame: &F, at: usize, v4: bool, packet: &mut Packet) -> bool {
    let payload = if v4 {
        v4::read(frame, at, packet)
    } else {
        v6::read(frame, at, packet)
    };
    payload.is_ok_and(|payload| upper::read_quoted(frame, payload, packet))
}

#[cfg(test)]
mod tests;
