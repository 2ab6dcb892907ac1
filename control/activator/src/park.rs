//! Parked requests: first in, first out, bounded by number and by bytes. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A request's place in line: the smaller, the earlier it came. A request that must wait again keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// How much may be parked.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Requests.
    pub count_max: usize,
    /// Bytes of memory that they hold.
    pub bytes_max: usize,
}

/// Which limit was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Too many requests.
    Count,
    /// Too many bytes.
    Bytes,
}

/// One app's parked requests. `W` wakes the one who waits.
#[derive(Debug)]
pub struct Queue<W> {
    waiting: BTreeMap<Ticket, Parked<W>>,
    bytes: usize,
}

#[derive(Debug)]
struct Parked<W> {
    waiter: W,
    bytes: usize,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl<W> Queue<W> {
    /// Parks a request that holds `bytes`, behind all that came earlier.
    pub fn park(
        &mut self,
        ticket: Ticket,
        bytes: usize,
        waiter: W,
        room: Room,
    ) -> Result<(), Full> {
        if self.waiting.len() >= room.count_max {
            return Err(Full::Count);
        }
        if self.bytes.saturating_add(bytes) > room.bytes_max {
            return Err(Full::Bytes);
        }
        self.bytes += bytes;
        self.waiting.insert(ticket, Parked { waiter, bytes });
        Ok(())
    }

    /// Takes out the earliest.
    pub fn pop(&mut self) -> Option<(Ticket, W)> {
        let (ticket, parked) = self.waiting.pop_first()?;
        self.bytes -= parked.bytes;
        Some((ticket, parked.waiter))
    }

    /// Takes out one that no longer wants to wait; `None` when it is not parked.
    pub fn remove(&mut self, ticket: Ticket) -> Option<W> {
        let parked = self.waiting.remove(&ticket)?;
        self.bytes -= parked.bytes;
        Some(parked.waiter)
    }

    /// How many are parked.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody is parked.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The memory that they hold, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What all apps together may park. Shared by counting only: no lock stands between two apps.
#[derive(Debug)]
pub struct Budget {
    count: AtomicUsize,
    bytes: AtomicUsize,
    room: Room,
}

impl Budget {
    /// A budget of which nothing is used.
    pub fn new(room: Room) -> Arc<Self> {
        Arc::new(Self {
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            room,
        })
    }

    /// Takes one request's share, until the share is dropped.
    pub fn claim(self: &Arc<Self>, bytes: usize) -> Result<Share, Full> {
        if !add_within(&self.count, 1, self.room.count_max) {
            return Err(Full::Count);
        }
        if !add_within(&self.bytes, bytes, self.room.bytes_max) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(Full::Bytes);
        }
        Ok(Share {
            budget: Arc::clone(self),
            bytes,
        })
    }

    /// Requests and bytes in use.
    pub fn used(&self) -> (usize, usize) {
        (
            self.count.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        )
    }
}

/// One parked request's share of the budget.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.count.fetch_sub(1, Ordering::Relaxed);
        self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn add_within(counter: &AtomicUsize, added: usize, max: usize) -> bool {
    let sum = |used: usize| used.checked_add(added).filter(|sum| *sum <= max);
    counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum)
        .is_ok()
}

#[cfg(test)]
mod tests;
