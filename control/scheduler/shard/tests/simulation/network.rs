//! The network: messages between two members arrive in their order, or not at all; those of others overtake them.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_scheduler_shard::{Member, Message};
use fastrand::Rng;

/// The time that most messages take, at most.
const DELAY_MS_MAX: u64 = 20;
/// The time that a few take, at most.
const LATE_MS_MAX: u64 = 200;

/// Messages in flight.
#[derive(Default)]
pub(super) struct Network {
    /// By the time of their arrival, and a number.
    flying: BTreeMap<(Duration, u64), Flying>,
    /// The last arrival of each connection.
    last: BTreeMap<(Member, Member), Duration>,
    number: u64,
}

/// A message in flight.
pub(super) struct Flying {
    pub(super) from: Member,
    pub(super) to: Member,
    pub(super) message: Message,
}

impl Network {
    pub(super) fn send(&mut self, now: Duration, flying: Flying, random: &mut Rng) {
        let most = if random.u8(0..20) == 0 {
            LATE_MS_MAX
        } else {
            DELAY_MS_MAX
        };
        let arrival = now + Duration::from_millis(random.u64(1..most));
        if random.u8(0..20) == 0 {
            // As it is sent between processes.
            let text = serde_json::to_string(&flying.message).unwrap();
            let read: Message = serde_json::from_str(&text).unwrap();
            assert_eq!(read, flying.message);
        }
        let connection = (flying.from.clone(), flying.to.clone());
        let last = self.last.entry(connection).or_default();
        *last = arrival.max(*last);
        self.number += 1;
        self.flying.insert((*last, self.number), flying);
    }

    /// The next message that has arrived.
    pub(super) fn arrived(&mut self, now: Duration) -> Option<Flying> {
        let first = self.flying.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// A connection breaks: what is in flight on it is lost.
    pub(super) fn cut(&mut self, random: &mut Rng) {
        let connections: Vec<_> = self.last.keys().cloned().collect();
        if connections.is_empty() {
            return;
        }
        let cut = &connections[random.usize(0..connections.len())];
        self.flying
            .retain(|_, one| (&one.from, &one.to) != (&cut.0, &cut.1));
    }
}
