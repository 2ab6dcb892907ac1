//! Reads the headers that matter from a frame, never past its end: the only way from bytes to facts.

/// Where the IPv6 header begins in an Ethernet frame.
pub const IPV6: usize = 14;
/// Where the transport header begins; extension headers are left to the kernel.
pub const L4: usize = IPV6 + 40;
/// Where the IPv6 source address lies.
pub const SOURCE: usize = IPV6 + 8;
/// Where the IPv6 destination address lies.
pub const TARGET: usize = IPV6 + 24;
/// Where the hop limit lies.
pub const HOP_LIMIT: usize = IPV6 + 7;

/// The EtherType of IPv6.
pub const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// IP protocol numbers.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// Bytes that can be asked for from any place, and refuse to be read past their end.
pub trait Bytes {
    /// The `N` bytes at `offset`.
    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;
}

impl Bytes for &[u8] {
    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.get(offset..)?.first_chunk().copied()
    }
}

/// The IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// What follows, in bytes.
    pub payload_len: u16,
    /// The protocol of what follows.
    pub next_header: u8,
    /// How many routers may still forward it.
    pub hop_limit: u8,
    /// From.
    pub source: [u8; 16],
    /// To.
    pub target: [u8; 16],
}

/// A TCP segment or UDP datagram: what the data plane decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// From.
    pub source: [u8; 16],
    /// To.
    pub target: [u8; 16],
    /// From which port.
    pub source_port: u16,
    /// To which port.
    pub target_port: u16,
    /// [`TCP`] or [`UDP`].
    pub protocol: u8,
    /// How many routers may still forward it.
    pub hop_limit: u8,
    /// TCP's flag byte; 0 for UDP.
    pub flags: u8,
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

impl Transport {
    /// It asks for a new TCP connection.
    #[inline(always)]
    pub const fn opens(&self) -> bool {
        self.flags & (SYN | ACK) == SYN
    }

    /// It may be the first of a conversation.
    #[inline(always)]
    pub const fn begins(&self) -> bool {
        self.protocol != TCP || self.opens()
    }

    /// It breaks a TCP connection off.
    #[inline(always)]
    pub const fn resets(&self) -> bool {
        self.flags & RST != 0
    }

    /// It ends a TCP connection, at least in one direction.
    #[inline(always)]
    pub const fn closes(&self) -> bool {
        self.flags & (FIN | RST) != 0
    }

    /// Where the checksum lies in the frame.
    #[inline(always)]
    pub const fn checksum_at(&self) -> usize {
        if self.protocol == TCP {
            L4 + 16
        } else {
            L4 + 6
        }
    }
}

/// Reads an Ethernet frame's IPv6 header.
#[inline(always)]
pub fn ipv6<B: Bytes>(frame: &B) -> Option<Ipv6> {
    if frame.load::<2>(12)? != ETHERTYPE_IPV6 {
        return None;
    }
    let [first, _, _, _, payload_0, payload_1, next_header, hop_limit] = frame.load::<8>(IPV6)?;
    if first >> 4 != 6 {
        return None;
    }
    Some(Ipv6 {
        payload_len: u16::from_be_bytes([payload_0, payload_1]),
        next_header,
        hop_limit,
        source: frame.load(SOURCE)?,
        target: frame.load(TARGET)?,
    })
}

/// Reads a frame that carries TCP or UDP.
#[inline(always)]
pub fn transport<B: Bytes>(frame: &B) -> Option<Transport> {
    let ip = ipv6(frame)?;
    let flags = match ip.next_header {
        TCP => frame.load::<20>(L4)?[13],
        UDP => {
            frame.load::<8>(L4)?;
            0
        }
        _ => return None,
    };
    let [s0, s1, t0, t1] = frame.load::<4>(L4)?;
    Some(Transport {
        source: ip.source,
        target: ip.target,
        source_port: u16::from_be_bytes([s0, s1]),
        target_port: u16::from_be_bytes([t0, t1]),
        protocol: ip.next_header,
        hop_limit: ip.hop_limit,
        flags,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn syn() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(ETHERTYPE_IPV6);
        frame.extend([0x60, 0, 0, 0, 0, 20, TCP, 64]);
        frame.extend([1; 16]);
        frame.extend([2; 16]);
        frame.extend([
            0x9c, 0x40, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0, 0, 0, 0, 0, 0,
        ]);
        frame
    }

    #[test]
    fn a_syn_is_read_whole() {
        let read = transport(&syn().as_slice()).unwrap();
        assert_eq!((read.source, read.source_port), ([1; 16], 40_000));
        assert_eq!((read.target, read.target_port), ([2; 16], 80));
        assert!(read.opens() && !read.closes());
    }

    #[test]
    fn a_frame_cut_anywhere_is_not_read() {
        let frame = syn();
        for len in 0..frame.len() {
            assert_eq!(transport(&&frame[..len]), None, "{len}");
        }
    }

    #[test]
    fn only_a_syn_without_ack_opens_and_fin_or_rst_closes() {
        let with = |flags| {
            let mut frame = syn();
            frame[L4 + 13] = flags;
            let read = transport(&frame.as_slice()).unwrap();
            (read.opens(), read.closes())
        };
        assert_eq!(with(SYN | ACK), (false, false));
        assert_eq!(with(ACK), (false, false));
        assert_eq!(with(FIN | ACK), (false, true));
        assert_eq!(with(RST), (false, true));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fail(frame in proptest::collection::vec(any::<u8>(), 0..120)) {
            let read = transport(&frame.as_slice());
            prop_assert!(read.is_none() || frame.len() >= L4 + 8);
        }
    }
}
