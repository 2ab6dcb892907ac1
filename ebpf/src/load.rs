//! How much a backend has been given by this node, and has still: packets' flows, and connections of sockets.

/// What one kind of conversations amounts to, as it lies in one word: begun in its low half, ended in its high half.
///
/// Both wrap: differences are right as long as fewer than 2^32 lie between two looks.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// So many began.
    pub begun: u32,
    /// So many of them have ended.
    pub ended: u32,
}

/// What a backend has of either kind. Counted from zero when its id gets its next generation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Flows of packets that this node leads to the backend itself.
    pub flows: Tally,
    /// Sockets that connect(2) led there.
    pub sockets: Tally,
}

const _: () = assert!(size_of::<Tally>() == 8 && size_of::<Load>() == 16);

impl Tally {
    /// One that ended, as it is added to a word.
    pub const ENDED: u64 = 1 << 32;

    /// From the map.
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

    /// So many have not ended.
    pub const fn open(self) -> u32 {
        // An end may be read before the begin that it belongs to.
        let open = self.begun.wrapping_sub(self.ended);
        if open.cast_signed() < 0 { 0 } else { open }
    }
}

impl Load {
    /// All that began, of both kinds.
    pub const fn begun(self) -> u32 {
        self.flows.begun.wrapping_add(self.sockets.begun)
    }

    /// All that has not ended.
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
