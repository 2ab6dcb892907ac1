//! Backend load: the flows and socket connections that this node has sent to a backend, and how many are open.

/// The connections of one kind, in one 64-bit word: begun in the low half, ended in the high half.
///
/// Both wrap: differences are right as long as fewer than 2^32 connections lie between two reads.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections that have begun.
    pub begun: u32,
    /// Connections of them that have ended.
    pub ended: u32,
}

/// A backend's load, a row of the map `load`. Incremented by the kernel; set to zero by the agent before the backend's id
/// gets its next generation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Flows whose packets this node translates to the backend.
    pub flows: Tally,
    /// Sockets that connect(2) has connected to the backend.
    pub sockets: Tally,
}

const _: () = assert!(size_of::<Tally>() == 8 && size_of::<Load>() == 16);

impl Tally {
    /// One ended connection, as it is added to the word.
    pub const ENDED: u64 = 1 << 32;

    /// Splits the word of the map.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each half is cut to itself"
    )]
    pub const fn unpack(word: u64) -> Self {
        Self {
            begun: word as u32,
            ended: (word >> 32) as u32,
        }
    }

    /// Connections that have not ended.
    pub const fn open(self) -> u32 {
        // An end may be read before the begin that it belongs to.
        let open = self.begun.wrapping_sub(self.ended);
        if open.cast_signed() < 0 { 0 } else { open }
    }
}

impl Load {
    /// Connections of both kinds that have begun, modulo 2^32.
    pub const fn begun(self) -> u32 {
        self.flows.begun.wrapping_add(self.sockets.begun)
    }

    /// Connections of both kinds that have not ended.
    pub const fn open(self) -> u32 {
        self.flows.open().saturating_add(self.sockets.open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_outlives_the_wrap_of_both_halves() {
        let tally = Tally::unpack(u64::from(3_u32));
        assert_eq!((tally.begun, tally.ended, tally.open()), (3, 0, 3));
        let ended = Tally::unpack((3 + Tally::ENDED).wrapping_add(u64::from(u32::MAX) << 32));
        assert_eq!(
            (ended.begun, ended.ended),
            (3, 0),
            "the high half wraps alone"
        );
        let wrapped = Tally {
            begun: 2,
            ended: u32::MAX,
        };
        assert_eq!(wrapped.open(), 3);
    }

    #[test]
    fn an_end_that_is_seen_before_its_begin_leaves_none_open() {
        assert_eq!(Tally { begun: 4, ended: 5 }.open(), 0);
    }
}
