//! The kernel's events: first packets to sleeping VIPs, and to VIPs without an entry.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{MapData, RingBuf};
use dormouse_agent_sys::readiness;
use dormouse_ebpf::service::EventKind;
use tokio::io::unix::AsyncFd;

use super::clock;
use super::error::DatapathError;
use super::load::Loaded;

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelEvent {
    /// Index of the VIP.
    pub vip: u32,
    /// Wake or miss.
    pub kind: EventKind,
    /// Destination port of the packet; 0: not known.
    pub port: u16,
    /// IP protocol number of the packet; 0: not known.
    pub protocol: u8,
    /// Time of the packet, as CLOCK_BOOTTIME in nanoseconds.
    pub at_ns: u64,
}

/// The reader of the ring buffer; there is only one.
pub struct KernelEvents {
    again: VecDeque<KernelEvent>,
    ring: RingBuf<MapData>,
    /// Created at the first wait, inside the async runtime.
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

    /// The next event. Cancel safe.
    pub async fn next(&mut self) -> KernelEvent {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            if let Err(error) = self.readable().await {
                tracing::error!(%error, "failed to wait for the ring buffer of events; polling");
                return std::future::pending().await;
            }
        }
    }

    /// Waits until the ring buffer may have an event.
    async fn readable(&mut self) -> io::Result<()> {
        let watch = match self.watch.take() {
            Some(watch) => watch,
            None => readiness::watch(self.ring.as_fd().try_clone_to_owned()?)?,
        };
        // Readiness is cleared before reading: later events wake again.
        self.watch.insert(watch).readable().await?.clear_ready();
        Ok(())
    }

    /// The next event, if there is one. Events that the previous agent may have read without reporting them come first, with the
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

/// Parses a record; none if its kind is unknown.
fn decode(bytes: &[u8]) -> Option<KernelEvent> {
    let vip = u32::from_ne_bytes(*bytes.first_chunk()?);
    let [kind, protocol] = *bytes.get(4..)?.first_chunk()?;
    let kind = match kind {
        1 => EventKind::Wake,
        2 => EventKind::Miss,
        _ => return None,
    };
    let port = u16::from_ne_bytes(*bytes.get(6..)?.first_chunk()?);
    let at_ns = u64::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
    Some(KernelEvent {
        vip,
        kind,
        port,
        protocol,
        at_ns,
    })
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
    fn a_truncated_record_or_an_unknown_kind_is_no_event() {
        let mut record = Vec::from(7_u32.to_ne_bytes());
        record.extend([1, 6]);
        record.extend(80_u16.to_ne_bytes());
        record.extend(99_u64.to_ne_bytes());
        assert_eq!(
            decode(&record),
            Some(KernelEvent {
                vip: 7,
                kind: EventKind::Wake,
                port: 80,
                protocol: 6,
                at_ns: 99
            })
        );
        assert_eq!(decode(&record[..15]), None);
        record[4] = 9;
        assert_eq!(decode(&record), None);
    }
}
