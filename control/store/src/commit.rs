//! The commit frontier: the highest revision of which every record up to it is as durable as its
//! mode asks. Reads and watches never go beyond it, so that no client sees what a crash takes back.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::Notify;

use crate::keyspace::Revision;

/// The highest visible revision. Writers advance it; the answers to writes wait for it.
#[derive(Debug)]
pub(crate) struct Frontier {
    visible: AtomicI64,
    moved: Notify,
}

impl Frontier {
    /// A frontier at a revision.
    pub(crate) fn new(visible: Revision) -> Self {
        Self {
            visible: AtomicI64::new(visible),
            moved: Notify::new(),
        }
    }

    /// The highest visible revision.
    pub(crate) fn visible(&self) -> Revision {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes all revisions up to this one visible; never moves back.
    pub(crate) fn advance(&self, revision: Revision) {
        if self.visible.fetch_max(revision, Ordering::AcqRel) < revision {
            self.moved.notify_waiters();
        }
    }

    /// Returns when the revision is visible. Cancel safe.
    pub(crate) async fn reached(&self, revision: Revision) {
        loop {
            // Registered before the check, so that no advance between them is missed.
            let moved = self.moved.notified();
            if self.visible() >= revision {
                return;
            }
            moved.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_waits_until_its_revision_is_visible() {
        let frontier = Frontier::new(1);
        let mut reached = std::pin::pin!(frontier.reached(3));
        assert!(futures::poll!(&mut reached).is_pending());
        frontier.advance(2);
        assert!(futures::poll!(&mut reached).is_pending());
        frontier.advance(4);
        assert!(futures::poll!(&mut reached).is_ready());
        frontier.advance(3);
        assert_eq!(frontier.visible(), 4);
    }
}
