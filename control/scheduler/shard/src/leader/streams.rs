//! The changes that a shard has not acknowledged.

use std::collections::VecDeque;
use std::time::Duration;

use super::Leader;
use crate::change::Change;
use crate::message::Message;
use crate::view::{Epoch, Member};

/// Changes in one message, at most.
const BATCH_MAX: usize = 500;
/// Changes that were sent to a shard and are not acknowledged, at most: a shard that comes gets its nodes at the pace at which
/// it applies them.
const UNAPPLIED_MAX: usize = 8 * BATCH_MAX;

/// The changes for one incarnation of a shard, in their order.
pub(super) struct Stream {
    began: Epoch,
    /// The number of the first one that is not acknowledged.
    first: u64,
    changes: VecDeque<Change>,
    /// The number of those that were sent since.
    sent_len: usize,
    sent_at: Duration,
}

impl Stream {
    pub(super) fn new(began: Epoch, changes: Vec<Change>) -> Self {
        Self {
            began,
            first: 0,
            changes: changes.into(),
            sent_len: 0,
            sent_at: Duration::ZERO,
        }
    }

    pub(super) fn push(&mut self, change: Change) {
        self.changes.push_back(change);
    }

    pub(super) fn is_applied(&self) -> bool {
        self.changes.is_empty()
    }

    /// The shard has applied so many changes.
    pub(super) fn applied(&mut self, stream: Epoch, len: u64) {
        if stream != self.began {
            return;
        }
        while self.first < len && self.changes.pop_front().is_some() {
            self.first += 1;
            self.sent_len = self.sent_len.saturating_sub(1);
        }
    }

    /// What was sent is to be sent again, if it is too old.
    fn rewind(&mut self, now: Duration, resend: Duration) {
        if self.sent_len > 0 && now >= self.sent_at + resend {
            self.sent_len = 0;
        }
    }

    /// The next message.
    fn next(&mut self, now: Duration) -> Option<Message> {
        if self.sent_len >= UNAPPLIED_MAX {
            return None;
        }
        let rest = self.changes.range(self.sent_len..);
        let changes: Vec<_> = rest.take(BATCH_MAX).cloned().collect();
        if changes.is_empty() {
            return None;
        }
        let sent_len = u64::try_from(self.sent_len).unwrap_or(u64::MAX);
        self.sent_len += changes.len();
        self.sent_at = now;
        Some(Message::Changes {
            stream: self.began,
            first: self.first.saturating_add(sent_len),
            changes,
        })
    }
}

impl Leader {
    /// Whether each attempt sees all decisions before it.
    pub(super) fn is_serial(&self) -> bool {
        self.limits.window <= 1
    }

    /// A change for the shard of a node.
    pub(super) fn push(&mut self, node: &str, change: Change) {
        let shard = self.view.shard_of(node);
        if let Some(stream) = shard.and_then(|shard| self.streams.get_mut(shard)) {
            stream.push(change);
        }
    }

    pub(super) fn push_to_all(&mut self, change: &Change) {
        for stream in self.streams.values_mut() {
            stream.push(change.clone());
        }
    }

    pub(super) fn flush_images(&mut self) {
        for (name, image) in self.cluster.image_changes() {
            self.push_to_all(&Change::Image(name, image));
        }
    }

    /// In the window of one, nothing changes during an attempt.
    pub(super) fn flush_streams(&mut self, now: Duration) {
        if self.is_serial() && !self.flights.is_empty() {
            return;
        }
        let mut sent = Vec::new();
        for (shard, stream) in &mut self.streams {
            while let Some(message) = stream.next(now) {
                sent.push((shard.clone(), message));
            }
        }
        self.send(sent, now);
    }

    /// Sends changes and the view again to members that have not acknowledged them.
    pub(super) fn resend(&mut self, now: Duration) {
        let resend = self.limits.resend;
        for stream in self.streams.values_mut() {
            stream.rewind(now, resend);
        }
        if now < self.view_sent_at + resend {
            return;
        }
        let members: Vec<Member> = self.view.members().cloned().collect();
        let missing = members
            .into_iter()
            .filter(|member| !self.adopted.contains(member));
        let view = |member| (member, Message::View(self.view.clone()));
        let sent: Vec<_> = missing.map(view).collect();
        if !sent.is_empty() {
            self.view_sent_at = now;
            self.send(sent, now);
        }
    }
}
