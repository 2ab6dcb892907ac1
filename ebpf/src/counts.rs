//! Connection counts of a VIP: exact averages of open connections from sums alone, without a timer in the kernel.

/// One CPU's sums for one VIP, an entry of the per-CPU map `counts`; all fields wrap. Written by the kernel, read by the
/// agent.
///
/// A writer increments `begun` first and `done` last; a copy in which they differ was taken in between. `done` is the first
/// field and `begun` the last because the kernel copies a value from its begin to its end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Updates that are complete.
    pub done: u64,
    /// Connections opened.
    pub opened: u64,
    /// The sum of the times when they were opened, CLOCK_BOOTTIME nanoseconds.
    pub opened_ns: u64,
    /// Connections closed.
    pub closed: u64,
    /// The sum of the times when they were closed.
    pub closed_ns: u64,
    /// Open connections of sockets: opened by connect(2), not yet closed with their socket.
    pub sockets: u64,
    /// Updates that have begun.
    pub begun: u64,
}

impl Counts {
    /// Whether no update was in progress when this copy was taken.
    pub const fn is_settled(&self) -> bool {
        self.done == self.begun
    }

    /// The sum of both, wrapping.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            done: self.done.wrapping_add(other.done),
            opened: self.opened.wrapping_add(other.opened),
            opened_ns: self.opened_ns.wrapping_add(other.opened_ns),
            closed: self.closed.wrapping_add(other.closed),
            closed_ns: self.closed_ns.wrapping_add(other.closed_ns),
            sockets: self.sockets.wrapping_add(other.sockets),
            begun: self.begun.wrapping_add(other.begun),
        }
    }

    /// Connections open now.
    pub const fn open(&self) -> u64 {
        self.opened.wrapping_sub(self.closed)
    }

    /// The open connections that are flows, whose entries a full table may evict.
    pub const fn open_flows(&self) -> u64 {
        self.open().wrapping_sub(self.sockets)
    }

    /// The integral of open connections up to `now_ns`, in connection-nanoseconds; only differences of two mean anything.
    ///
    /// Each open connection adds `now - opened`, each closed one `closed - opened`; summed, the products cancel to this.
    pub const fn connection_ns(&self, now_ns: u64) -> u64 {
        let opened = self
            .opened
            .wrapping_mul(now_ns)
            .wrapping_sub(self.opened_ns);
        let closed = self
            .closed
            .wrapping_mul(now_ns)
            .wrapping_sub(self.closed_ns);
        opened.wrapping_sub(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn opened(ns: u64) -> Counts {
        Counts {
            opened: 1,
            opened_ns: ns,
            ..Counts::default()
        }
    }

    fn closed(ns: u64) -> Counts {
        Counts {
            closed: 1,
            closed_ns: ns,
            ..Counts::default()
        }
    }

    #[test]
    fn two_connections_of_which_one_closes_have_the_integral_drawn_by_hand() {
        let counts = opened(100).plus(&opened(150)).plus(&closed(180));
        assert_eq!(counts.open(), 1);
        assert_eq!(counts.connection_ns(200), 80 + 50);
    }

    proptest! {
        #[test]
        fn the_integral_over_an_interval_is_the_sum_of_what_each_connection_was_open_in_it(
            spans in proptest::collection::vec((0_u64..1_000, 0_u64..1_000), 0..50),
            boot in 0..u64::MAX / 2,
        ) {
            let (from, until) = (boot + 1_000, boot + 3_000);
            let mut before = Counts::default();
            let mut after = Counts::default();
            let mut expected = 0;
            for &(start, len) in &spans {
                let (open, close) = (boot + start, boot + 1_000 + start + len);
                before = before.plus(&opened(open));
                after = after.plus(&opened(open)).plus(&closed(close));
                expected += close - from;
            }
            let integral = after.connection_ns(until).wrapping_sub(before.connection_ns(from));
            prop_assert_eq!(integral, expected);
        }
    }
}
