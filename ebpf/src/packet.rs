//! Reads the headers that matter from a frame, never past its end: the only way from bytes to facts.
//!
//! What is no packet by the standards is called so here, once, so that nothing behind has to doubt a length again.

mod fragment;
mod upper;
mod v4;
mod v6;

pub use fragment::{FIRST, LATER, WHOLE};
pub use v6::EXTENSIONS_MAX;

/// Offset of the network header in an Ethernet frame.
pub const L3: usize = 14;
/// Where the transport header begins; extension headers are left to the kernel.
pub const L4: usize = L3 + 40;
/// The same of IPv4, without options.
const L4_OF_V4: usize = L3 + 20;

/// Where an IPv4 header has its checksum (RFC 791 3.1).
pub const V4_CHECKSUM: usize = 10;

/// The EtherType of IPv4.
pub const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
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

/// Where the EtherType lies in an Ethernet frame.
const ETHERTYPE: usize = 12;

/// Bytes of a frame, laid where whole words can be read from them: BPF reads its stack by aligned words only.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct Aligned<const N: usize>(pub [u8; N]);

/// An Ethernet frame that can be asked for bytes from any place, and refuses to be read past its end.
pub trait Frame {
    /// Its length in bytes.
    fn length(&self) -> usize;
    /// Its EtherType.
    fn ethertype(&self) -> Option<[u8; 2]>;
    /// The `N` bytes at `offset`.
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

/// What the data plane decides by. IPv4 addresses are held IPv4-mapped (`::ffff:a.b.c.d`, RFC 4291 2.5.5.2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// From.
    pub source: [u8; 16],
    /// To.
    pub target: [u8; 16],
    /// From which port; 0 where there is no transport header.
    pub source_port: u16,
    /// To which port; 0 where there is no transport header.
    pub target_port: u16,
    /// Where the transport (or ICMP) header lies in the frame; 0: a later fragment, which has none.
    pub l4: u16,
    /// Bytes of the IP packet, its header included, as the header says; IPv6's, which may say more, stops at 65 535.
    pub len: u16,
    /// Identification of the fragments of one packet; only meaningful if `fragment` is not [`WHOLE`].
    pub id: u32,
    /// The protocol of what the IP packet carries, behind all extension headers.
    ///
    /// In a later IPv6 fragment it may be an extension header's number: the first of what was fragmented.
    pub protocol: u8,
    /// How many routers may still forward it.
    pub hop_limit: u8,
    /// TCP's flag byte; SCTP's first chunk type; 0 otherwise, and in a quoted packet.
    pub flags: u8,
    /// 1: IPv4.
    pub v4: u8,
    /// [`WHOLE`], [`FIRST`] or [`LATER`].
    pub fragment: u8,
    /// Zero, so that equal packets are equal bytes.
    pub pad: [u8; 3],
}

const _: () = assert!(size_of::<Packet>() == 52, "no padding but `pad`");

/// What was found in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// TCP, UDP or SCTP, whole or the first fragment: ports are read.
    Transport,
    /// A later fragment of TCP, UDP or SCTP: no ports.
    Fragment,
    /// An ICMP or ICMPv6 *error*; `l4` is its header; it quotes the packet that begins at `l4 + 8`.
    Error,
    /// Nothing that we translate (ARP, NDP, echo, other protocols, non-IP): the kernel's business.
    Other,
    /// Not a packet: truncated, lengths that lie, headers that no honest sender builds.
    Malformed,
}

/// Where what an IP header leads to lies in the frame.
#[derive(Clone, Copy)]
struct Payload {
    /// Its first byte.
    at: usize,
    /// The byte after its last, as the IP header says.
    end: usize,
    /// How many bytes of the unfragmented packet's payload went before.
    offset: usize,
}

/// TCP's flag bits (RFC 9293 3.1).
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// SCTP's chunk types (RFC 9260 3.2).
const INIT: u8 = 1;
const ABORT: u8 = 6;
const SHUTDOWN_COMPLETE: u8 = 14;

impl Packet {
    /// It asks for a new connection: a TCP SYN without ACK, an SCTP INIT.
    #[inline(always)]
    pub const fn opens(&self) -> bool {
        match self.protocol {
            TCP => self.flags & (SYN | ACK) == SYN,
            SCTP => self.flags == INIT,
            _ => false,
        }
    }

    /// It may be the first of a conversation.
    #[inline(always)]
    pub const fn begins(&self) -> bool {
        self.protocol == UDP || self.opens()
    }

    /// It breaks a connection off.
    #[inline(always)]
    pub const fn resets(&self) -> bool {
        match self.protocol {
            TCP => self.flags & RST != 0,
            SCTP => self.flags == ABORT,
            _ => false,
        }
    }

    /// It ends a connection, at least in one direction.
    #[inline(always)]
    pub const fn closes(&self) -> bool {
        match self.protocol {
            TCP => self.flags & (FIN | RST) != 0,
            SCTP => matches!(self.flags, ABORT | SHUTDOWN_COMPLETE),
            _ => false,
        }
    }

    /// Nobody but its receiver has anything to read in it: one IP header without options, and not a fragment.
    #[inline(always)]
    pub const fn is_plain(&self) -> bool {
        let header_end = if self.v4 == 1 { L4_OF_V4 } else { L4 };
        self.l4 as usize == header_end && self.fragment == WHOLE
    }

    /// An end of it never crosses a network (RFC 6890; RFC 1812 5.3.7).
    ///
    /// IPv6's `::` is a legal source of duplicate address detection only, which is ICMPv6 and so [`Read::Other`].
    #[inline(always)]
    pub const fn is_martian(&self) -> bool {
        if self.v4 == 0 {
            self.source[0] == 0xff || v6::stays_home(&self.source) || v6::stays_home(&self.target)
        } else {
            v4::never_sends(v4_of(&self.source)) || v4::stays_home(v4_of(&self.target))
        }
    }
}

/// An IPv4 address as IPv6 holds it (RFC 4291 2.5.5.2).
#[inline(always)]
pub const fn mapped(v4: [u8; 4]) -> [u8; 16] {
    let [a, b, c, d] = v4;
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
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

/// Reads an Ethernet frame.
///
/// With [`Read::Other`] and [`Read::Malformed`], `packet` may be half read, or not at all.
// A function of its own, unlike others: inlined, the optimiser takes `packet` apart into dozens of variables that BPF
// has no registers for, and the verifier walks all ways through whatever follows once for each way through here.
#[inline(never)]
pub fn read<F: Frame>(frame: &F, packet: &mut Packet) -> Read {
    let payload = match frame.ethertype() {
        Some(ETHERTYPE_IPV4) => v4::read(frame, L3, packet),
        Some(ETHERTYPE_IPV6) => v6::read(frame, L3, packet),
        Some(_) => Err(Read::Other),
        None => Err(Read::Malformed),
    };
    match payload {
        // Asked once, nothing behind has to ask whether the frame holds what its headers say.
        Ok(payload) if payload.end <= frame.length() => upper::read(frame, payload, packet),
        Ok(_) => Read::Malformed,
        Err(read) => read,
    }
}

/// Reads the packet that an ICMP error quotes, whose IP header begins `at`: false if ports are not to be had.
///
/// Only 8 bytes of its transport header need be there (RFC 792; RFC 4443 3), so its flags are not read.
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
