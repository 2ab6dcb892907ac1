//! A classifier program on the host side of a pod's veth that drops what exceeds the pod's egress limit. The limit inside the
//! pod (TBF) delays packets, which is better for TCP, but the pod can remove it; this one it cannot.
//!
//! It runs before the data path's programs, which may redirect a packet. An IFB that delays would have to come after them,
//! because packets that it returns meet no classifier again; and it would be one more link that a crash can leave behind.
//! State and rate belong to this one program, which is removed with the link: no maps to look up, adopt or clean.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use dormouse_agent_sys::bpf::{load_classifier, new_word};

/// Loads the program for a pod with this rate and burst, in bytes.
pub(super) fn load(bytes_per_second: u64, bucket: u64) -> io::Result<OwnedFd> {
    let word = new_word()?;
    let program = instructions(bytes_per_second, bucket, word.as_raw_fd());
    // The program holds a reference to the map from now on.
    load_classifier(&program)
}

const NS_PER_S: i32 = 1_000_000_000;

// Classes, operations and modes of BPF instructions (RFC 9669, 3 to 5).
const LOAD_WORD: u8 = 0x61;
const LOAD_DOUBLE: u8 = 0x79;
const LOAD_IMMEDIATE: u8 = 0x18;
const ATOMIC_DOUBLE: u8 = 0xdb;
const ADD: u8 = 0x0f;
const SUBTRACT: u8 = 0x1f;
const DIVIDE: u8 = 0x3f;
const MULTIPLY_BY: u8 = 0x27;
const NEGATE: u8 = 0x87;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const SKIP_IF_NOT_LESS: u8 = 0x3d;
const SKIP_IF_GREATER_SIGNED: u8 = 0x6d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

const ATOMIC_ADD: i32 = 0x00;
const ATOMIC_FETCH_ADD: i32 = 0x01;
const ATOMIC_COMPARE_EXCHANGE: i32 = 0xf1;
/// Source register number of a load: the immediate is a map's file descriptor, the result an address of its value.
const MAP_VALUE: u8 = 2;
const KTIME_GET_NS: i32 = 5;
/// Offset of `len` in the context.
const LENGTH_AT: i16 = 0;
/// TC_ACT_UNSPEC: the next classifier decides.
const NEXT: i32 = -1;
const DROP: i32 = 2;

/// A token bucket in one word (the generic cell rate algorithm of ITU-T I.371): the time at which all passed bytes would have
/// passed at exactly the rate. It may be ahead of now by the bucket's duration.
fn instructions(bytes_per_second: u64, bucket: u64, word: i32) -> Vec<u64> {
    let rate = bytes_per_second.max(1);
    let ahead = u128::from(bucket) * u128::from(NS_PER_S.unsigned_abs()) / u128::from(rate);
    // Half of the range of the signed comparison, so that no sum overflows.
    let ahead = u64::try_from(ahead).unwrap_or(u64::MAX).min(u64::MAX / 4);
    let [time, length, place, now, one, two] = [0, 6, 7, 8, 1, 2];
    let mut program = vec![
        instruction(LOAD_WORD, (length, 1), LENGTH_AT, 0),
        instruction(CALL, (0, 0), 0, KTIME_GET_NS),
        instruction(MOVE, (now, time), 0, 0),
        instruction(LOAD_IMMEDIATE, (place, MAP_VALUE), 0, word),
        instruction(0, (0, 0), 0, 0),
        // The packet's duration at the rate, in nanoseconds.
        instruction(MULTIPLY_BY, (length, 0), 0, NS_PER_S),
    ];
    program.extend(number(one, rate));
    program.extend([
        instruction(DIVIDE, (length, one), 0, 0),
        // Unused time is not saved: if another CPU wins this race, it has stored a later time.
        instruction(LOAD_DOUBLE, (time, place), 0, 0),
        instruction(SKIP_IF_NOT_LESS, (time, now), 1, 0),
        instruction(ATOMIC_DOUBLE, (place, now), 0, ATOMIC_COMPARE_EXCHANGE),
        instruction(MOVE, (one, length), 0, 0),
        instruction(ATOMIC_DOUBLE, (place, one), 0, ATOMIC_FETCH_ADD),
        instruction(ADD, (one, length), 0, 0),
        instruction(SUBTRACT, (one, now), 0, 0),
    ]);
    program.extend(number(two, ahead));
    program.extend([
        instruction(SKIP_IF_GREATER_SIGNED, (one, two), 2, 0),
        instruction(MOVE_IMMEDIATE, (time, 0), 0, NEXT),
        instruction(EXIT, (0, 0), 0, 0),
        // A dropped packet consumes nothing.
        instruction(NEGATE, (length, 0), 0, 0),
        instruction(ATOMIC_DOUBLE, (place, length), 0, ATOMIC_ADD),
        instruction(MOVE_IMMEDIATE, (time, 0), 0, DROP),
        instruction(EXIT, (0, 0), 0, 0),
    ]);
    program
}

/// The destination and source registers of an instruction.
type Registers = (u8, u8);

/// One instruction in the kernel's layout.
fn instruction(code: u8, registers: Registers, offset: i16, immediate: i32) -> u64 {
    let (to, from) = registers;
    let registers = if cfg!(target_endian = "big") {
        to << 4 | from
    } else {
        from << 4 | to
    };
    let mut bytes = [code, registers, 0, 0, 0, 0, 0, 0];
    bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
    bytes[4..].copy_from_slice(&immediate.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// Loads a 64-bit number into a register: two instructions.
fn number(register: u8, number: u64) -> [u64; 2] {
    let half = |at: u32| {
        let [a, b, c, d, ..] = (number >> at).to_le_bytes();
        i32::from_le_bytes([a, b, c, d])
    };
    [
        instruction(LOAD_IMMEDIATE, (register, 0), 0, half(0)),
        instruction(0, (0, 0), 0, half(32)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_64_bit_number_is_split_over_two_instructions() {
        let [low, high] = number(2, 0x1122_3344_5566_7788);
        assert_eq!(low, instruction(LOAD_IMMEDIATE, (2, 0), 0, 0x5566_7788));
        assert_eq!(high, instruction(0, (0, 0), 0, 0x1122_3344));
    }
}
