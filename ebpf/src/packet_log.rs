//! The log of packets: what programs and the agent agree on.

use crate::budget::Budget;

/// The target of the lines, by which the agent's log filter selects them.
pub const TARGET: &str = "packets";

/// The lines that a node writes: 100 a second, and as many at once.
pub const BUDGET: Budget = Budget {
    interval_ns: 10_000_000,
    burst: 100,
};

/// The programs whose packets are logged, by their number in a line. Each has another one, named with [`SUFFIX`], that logs.
pub const PROGRAMS: [&str; 5] = [
    "xdp_uplink",
    "tcx_uplink_in",
    "tcx_uplink_out",
    "tcx_pod_in",
    "tcx_pod_out",
];
/// See [`PROGRAMS`].
pub const SUFFIX: &str = "_log";
/// See [`PROGRAMS`].
pub const XDP_UPLINK: u8 = 0;
/// See [`PROGRAMS`].
pub const TCX_UPLINK_IN: u8 = 1;
/// See [`PROGRAMS`].
pub const TCX_UPLINK_OUT: u8 = 2;
/// See [`PROGRAMS`].
pub const TCX_POD_IN: u8 = 3;
/// See [`PROGRAMS`].
pub const TCX_POD_OUT: u8 = 4;

/// The ring buffer of the lines, which aya-log names, and its bytes where nothing writes to it: a page of the largest size.
pub const MAP: &str = "AYA_LOGS";
/// See [`MAP`].
pub const UNUSED_BYTES: u32 = 1 << 16;

/// Words of a line: [`Facts`], the verdicts that the program has counted (a bit for each), the packets without a line since the one before; and twice,
/// before and after the program, the source address, its port, the destination address, its port.
pub const WORDS: usize = 11;

/// What one word of a line says: a program's stack has no room for more words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The program, by its place in [`PROGRAMS`].
    pub program: u8,
    /// Its return code: TC_ACT_* or XDP_*.
    pub action: i8,
    /// The packet's IP protocol number.
    pub protocol: u8,
    /// [`Packet::flags`](crate::packet::Packet::flags).
    pub flags: u8,
    /// Bytes of the packet, with its IP header.
    pub len: u16,
}

impl Facts {
    /// All of them in one word.
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        let [high, low] = self.len.to_be_bytes();
        let action = self.action.cast_unsigned();
        u64::from_be_bytes([
            0,
            0,
            self.program,
            action,
            self.protocol,
            self.flags,
            high,
            low,
        ])
    }

    /// The facts in a word.
    pub const fn unpack(word: u64) -> Self {
        let [_, _, program, action, protocol, flags, high, low] = word.to_be_bytes();
        Self {
            program,
            action: action.cast_signed(),
            protocol,
            flags,
            len: u16::from_be_bytes([high, low]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_all_facts() {
        let facts = Facts {
            program: 4,
            action: -1,
            protocol: 255,
            flags: 0x12,
            len: 65_535,
        };
        assert_eq!(Facts::unpack(facts.pack()), facts);
    }
}
