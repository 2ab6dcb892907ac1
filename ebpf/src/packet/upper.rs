//! The transport header: ports of TCP, UDP and SCTP, and ICMP errors.

use super::{
    Aligned, FIRST, Frame, ICMP, ICMPV6, LATER, Packet, Payload, Read, SCTP, TCP, UDP, v6,
};

/// Bytes of the transport headers, options excluded (RFC 9293 3.1, RFC 768, RFC 9260 3.1).
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const SCTP_HEADER: usize = 12;
/// Bytes of an ICMP error before what it quotes (RFC 792, RFC 4443 3).
const ICMP_HEADER: usize = 8;

/// Parses the payload behind all IP headers.
#[inline(always)]
pub(super) fn read<F: Frame>(frame: &F, payload: Payload, packet: &mut Packet) -> Read {
    let read = if packet.fragment == LATER {
        later(payload.offset, packet)
    } else {
        whole(frame, payload, packet)
    };
    if packet.routed == 1 && !matches!(read, Read::Malformed) {
        return Read::Other;
    }
    read
}

/// Parses the header of a packet that is whole, or a first fragment.
#[inline(always)]
fn whole<F: Frame>(frame: &F, payload: Payload, packet: &mut Packet) -> Read {
    let Ok(l4) = u16::try_from(payload.at) else {
        return Read::Malformed;
    };
    packet.l4 = l4;
    let read = match packet.protocol {
        TCP => tcp(frame, payload, packet),
        UDP => udp(frame, payload, packet),
        SCTP => sctp(frame, payload, packet),
        ICMP if packet.v4 == 1 => icmp(frame, payload, packet),
        ICMPV6 if packet.v4 == 0 => icmp(frame, payload, packet),
        _ => Some(Read::Other),
    };
    read.unwrap_or(Read::Malformed)
}

/// Parses the ports of a quoted packet.
#[inline(always)]
pub(super) fn read_quoted<F: Frame>(frame: &F, payload: Payload, packet: &mut Packet) -> bool {
    if packet.fragment == LATER || packet.routed == 1 {
        return false;
    }
    if !matches!(packet.protocol, TCP | UDP | SCTP) {
        return false;
    }
    let (Ok(l4), Some(Aligned([s0, s1, t0, t1, ..]))) =
        (u16::try_from(payload.at), frame.load::<8>(payload.at))
    else {
        return false;
    };
    packet.l4 = l4;
    ports([s0, s1, t0, t1], packet);
    true
}

/// Checks a later fragment: one that overlaps the transport header would replace the ports that were decided by (RFC 3128).
#[inline(always)]
const fn later(offset: usize, packet: &Packet) -> Read {
    let header = match packet.protocol {
        TCP => TCP_HEADER,
        UDP => UDP_HEADER,
        SCTP => SCTP_HEADER,
        extension if packet.v4 == 0 && v6::is_fragmentable(extension) => 0,
        _ => return Read::Other,
    };
    if offset < header {
        return Read::Malformed;
    }
    Read::Fragment
}

#[inline(always)]
fn tcp<F: Frame>(frame: &F, payload: Payload, packet: &mut Packet) -> Option<Read> {
    let Aligned([s0, s1, t0, t1, .., offset, flags]) = frame.load::<14>(payload.at)?;
    let header = usize::from(offset >> 4) * 4;
    if header < TCP_HEADER || payload.at + header > payload.end {
        return None;
    }
    ports([s0, s1, t0, t1], packet);
    packet.flags = flags;
    Some(Read::Transport)
}

#[inline(always)]
fn udp<F: Frame>(frame: &F, payload: Payload, packet: &mut Packet) -> Option<Read> {
    let Aligned([s0, s1, t0, t1, len_0, len_1]) = frame.load::<6>(payload.at)?;
    let len = usize::from(u16::from_be_bytes([len_0, len_1]));
    // A first fragment holds only a part of the length in its UDP header.
    let here = if packet.fragment == FIRST {
        UDP_HEADER
    } else {
        len
    };
    if len < UDP_HEADER || payload.at + here > payload.end {
        return None;
    }
    ports([s0, s1, t0, t1], packet);
    Some(Read::Transport)
}

#[inline(always)]
fn sctp<F: Frame>(frame: &F, payload: Payload, packet: &mut Packet) -> Option<Read> {
    let first_chunk = payload.at + SCTP_HEADER;
    if first_chunk > payload.end {
        return None;
    }
    ports(frame.load(payload.at)?.0, packet);
    if first_chunk < payload.end {
        let Aligned([kind]) = frame.load::<1>(first_chunk)?;
        packet.flags = kind;
    }
    Some(Read::Transport)
}

#[inline(always)]
fn icmp<F: Frame>(frame: &F, payload: Payload, packet: &mut Packet) -> Option<Read> {
    if payload.at == payload.end {
        return None;
    }
    let Aligned([kind]) = frame.load::<1>(payload.at)?;
    packet.flags = kind;
    let is_error = if packet.v4 == 1 {
        matches!(kind, 3 | 11 | 12)
    } else {
        matches!(kind, 1..=4)
    };
    // Errors are shorter than every MTU (RFC 1812 4.3.2.3, RFC 4443 2.4 c): a fragmented one is left to the kernel.
    if !is_error || packet.fragment == FIRST {
        return Some(Read::Other);
    }
    (payload.at + ICMP_HEADER <= payload.end).then_some(Read::Error)
}

#[inline(always)]
const fn ports(bytes: [u8; 4], packet: &mut Packet) {
    let [s0, s1, t0, t1] = bytes;
    packet.source_port = u16::from_be_bytes([s0, s1]);
    packet.target_port = u16::from_be_bytes([t0, t1]);
}
