//! Mutations of frames: bits, fields, addresses, lengths, headers, and two frames spliced.

use std::net::Ipv6Addr;

use dormouse_agent_datapath::Hook;

use super::bytes::{ETHERNET, ICMP, ICMPV6, TCP, UDP, V4, V6, view, word};
use super::random::Random;
use super::world::ADDRESSES;

/// The shortest frame that the kernel runs.
const SHORTEST: usize = ETHERNET + 1;
/// Bytes that have a meaning somewhere: numbers of protocols, limits.
const BYTES: [u8; 18] = [
    0, 1, 2, 4, 6, 17, 43, 44, 50, 51, 58, 59, 60, 0x45, 0x60, 132, 254, 255,
];
const WORDS: [u16; 10] = [
    0, 1, 80, 8_000, 0x0800, 0x0806, 0x86dd, 0x8100, 0x2000, 0xffff,
];
/// Headers of IPv6 between the first one and the protocol's.
const EXTENSIONS: [u8; 5] = [0, 43, 44, 51, 60];

/// One of the frames after some mutations, with the hook that it comes by.
pub(super) fn mutate(seeds: &[(Hook, Vec<u8>)], random: &mut Random) -> (Hook, Vec<u8>) {
    let (hook, frame) = &seeds[random.below(seeds.len())];
    let mut frame = frame.clone();
    for _ in 0..random.below(4) {
        one(&mut frame, seeds, random);
    }
    // The kernel refuses to run a packet without a whole IP header.
    let shortest = match word(&frame, 12) {
        0x0800 => V4,
        0x86dd => V6,
        _ => SHORTEST,
    };
    frame.resize(frame.len().max(shortest), 0);
    if random.below(2) == 0 {
        correct(&mut frame);
    }
    (*hook, frame)
}

fn one(frame: &mut Vec<u8>, seeds: &[(Hook, Vec<u8>)], random: &mut Random) {
    let last = frame.len().min(110) - 1;
    match random.below(10) {
        0 => frame[random.below(last + 1)] ^= 1 << random.below(8),
        1 => frame[random.below(last + 1)] = random.byte(),
        2 => frame[random.below(last + 1)] = random.pick(&BYTES),
        3 => {
            let at = random.below(last);
            put(frame, at, &random.pick(&WORDS).to_be_bytes());
        }
        4 | 5 => address(frame, random),
        6 => frame.truncate(SHORTEST.max(random.below(frame.len() + 1))),
        7 => {
            for _ in 0..random.below(80) {
                frame.push(random.byte());
            }
        }
        8 => insert_header(frame, random),
        _ => {
            let other = &seeds[random.below(seeds.len())].1;
            let at = random.below(frame.len().min(other.len())).max(SHORTEST);
            frame.truncate(at);
            frame.extend(other.get(at..).unwrap_or_default());
        }
    }
}

fn put(frame: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = frame.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Replaces an address, or exchanges both.
fn address(frame: &mut [u8], random: &mut Random) {
    let Some(view) = view(frame) else {
        return;
    };
    let (from, length) = if view.v4 { (26, 4) } else { (22, 16) };
    if random.below(4) == 0 {
        let (source, target) = (frame[from..from + length].to_vec(), from + length);
        frame.copy_within(target..target + length, from);
        put(frame, target, &source);
        return;
    }
    let at = from + random.below(2) * length;
    let address: Ipv6Addr = random.pick(&ADDRESSES);
    put(frame, at, &address.octets()[16 - length..]);
}

/// Inserts an extension header behind IPv6's own.
fn insert_header(frame: &mut Vec<u8>, random: &mut Random) {
    if frame.len() < V6 || frame[ETHERNET] >> 4 != 6 {
        return;
    }
    let mut header = vec![frame[20], 0, 0, 0, 0, 0, 0, random.byte() & 3];
    if random.below(4) == 0 {
        header[1] = random.pick(&BYTES);
        header[2] = random.byte();
        header[3] = random.byte();
    }
    frame[20] = random.pick(&EXTENSIONS);
    frame.splice(V6..V6, header);
    let length = u16::try_from(frame.len() - V6).unwrap();
    put(frame, 18, &length.to_be_bytes());
}

/// Corrects length and checksums, so that the packet comes further.
fn correct(frame: &mut [u8]) {
    if let Some(first) = frame.get(ETHERNET) {
        let (at, before) = if first >> 4 == 4 {
            (16, ETHERNET)
        } else {
            (18, V6)
        };
        let length = u16::try_from(frame.len().saturating_sub(before)).unwrap();
        put(frame, at, &length.to_be_bytes());
    }
    let Some(found) = view(frame) else {
        return;
    };
    if found.v4 {
        put(frame, 24, &[0, 0]);
        let sum = !dormouse_rig::frame::ones_sum(&frame[ETHERNET..found.l4]);
        put(frame, 24, &sum.to_be_bytes());
    }
    let at = match found.protocol {
        TCP => 16,
        UDP => 6,
        ICMP | ICMPV6 => 2,
        _ => return,
    };
    if found.l4 + at + 2 > found.end {
        return;
    }
    // With one's complement of zero in it, UDP's checksum is not absent.
    put(frame, found.l4 + at, &[0xff, 0xff]);
    let Some(wrong) = super::bytes::residue(frame, &found) else {
        return;
    };
    let sum = !u16::try_from(wrong).unwrap();
    put(frame, found.l4 + at, &sum.to_be_bytes());
}
