//! The kernel's events: first packets to sleeping VIPs, and to VIPs that the node does not follow.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{MapData, RingBuf};
use dormouse_ebpf::service::EventKind;
use tokio::io::unix::AsyncFd;

use super::clock;
use super::error::DatapathError;
use super::load::Loaded;
use dormouse_agent_sys::readiness;

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelEvent {
    /// The VIP's index.
    pub vip: u32,
    /// What happened.
    pub kind: EventKind,
    /// When the packet was seen, CLOCK_BOOTTIME nanoseconds.
    pub at_ns: u64,
}

/// The ring of events; it has one reader.
pub struct KernelEvents {
    again: VecDeque<KernelEvent>,
    ring: RingBuf<MapData>,
    /// Made at the first wait, which is where a runtime is.
    watch: Option<AsyncFd<OwnedFd>>,
}

impl KernelEvents {
    pub(super) fn open(
        loaded: &mut Loaded,
        unanswered: Vec<KernelEvent>,
    ) -> Result<Self, DatapathError> {
        let map = loaded.take("events")?;
        let ring = RingBuf::try_from(map).map_err(DatapathError::map("open", "events"))?;
        let now = clock::boottime_ns();
        let again = unanswered
            .into_iter()
            .map(|event| KernelEvent {
                at_ns: now,
                ..event
            })
            .collect();
        Ok(Self {
            again,
            ring,
            watch: None,
        })
    }

    /// The next event. Cancelling the wait loses none.
    pub async fn next(&mut self) -> KernelEvent {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            if let Err(error) = self.readable().await {
                tracing::error!(%error, "the ring of events cannot be waited for");
                return std::future::pending().await;
            }
        }
    }

    /// Waits until there may be an event.
    async fn readable(&mut self) -> io::Result<()> {
        let watch = match self.watch.take() {
            Some(watch) => watch,
            None => readiness::watch(self.ring.as_fd().try_clone_to_owned()?)?,
        };
        // What comes from here on wakes again; what came before is read next.
        self.watch.insert(watch).readable().await?.clear_ready();
        Ok(())
    }

    /// The next event, if there is one. What an agent before may have read without telling comes again first, at the
    /// time of this agent's start.
    pub fn try_next(&mut self) -> Option<KernelEvent> {
        if let Some(event) = self.again.pop_front() {
            return Some(event);
        }
        while let Some(item) = self.ring.next() {
            if let Some(event) = decode(&item) {
                return Some(event);
            }
        }
        None
    }
}

/// The record as the kernel wrote it; one of a kind that this agent does not know is none.
fn decode(bytes: &[u8]) -> Option<KernelEvent> {
    let vip = u32::from_ne_bytes(*bytes.first_chunk()?);
    let kind = match u32::from_ne_bytes(*bytes.get(4..)?.first_chunk()?) {
        1 => EventKind::Wake,
        2 => EventKind::Miss,
        _ => return None,
    };
    let at_ns = u64::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
    Some(KernelEvent { vip, kind, at_ns })
}

impl std::fmt::Debug for KernelEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelEvents")
            .field("again", &self.again)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_cut_short_or_of_an_unknown_kind_is_no_event() {
        let mut record = Vec::from(7_u32.to_ne_bytes());
        record.extend(1_u32.to_ne_bytes());
        record.extend(99_u64.to_ne_bytes());
        assert_eq!(
            decode(&record),
            Some(KernelEvent {
                vip: 7,
                kind: EventKind::Wake,
                at_ns: 99
            })
        );
        assert_eq!(decode(&record[..15]), None);
        record[4] = 9;
        assert_eq!(decode(&record), None);
    }
}
