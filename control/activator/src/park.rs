//! The queue of parked requests: first in, first out, limited by number and by bytes. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A request's number in order of arrival. A request that is parked again keeps it, and so its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Limits of parked requests.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Number of requests.
    pub count_max: usize,
    /// Their memory, in bytes.
    pub bytes_max: usize,
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReached {
    /// The number of requests.
    Count,
    /// Their bytes.
    Bytes,
}

/// One app's parked requests. `W` wakes the waiting task.
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
    /// Parks a request that uses `bytes`, ordered by its ticket.
    pub fn park(
        &mut self,
        ticket: Ticket,
        bytes: usize,
        waiter: W,
        limits: QueueLimits,
    ) -> Result<(), LimitReached> {
        if self.waiting.len() >= limits.count_max {
            return Err(LimitReached::Count);
        }
        if self.bytes.saturating_add(bytes) > limits.bytes_max {
            return Err(LimitReached::Bytes);
        }
        self.bytes += bytes;
        self.waiting.insert(ticket, Parked { waiter, bytes });
        Ok(())
    }

    /// Removes the earliest request.
    pub fn pop(&mut self) -> Option<(Ticket, W)> {
        let (ticket, parked) = self.waiting.pop_first()?;
        self.bytes -= parked.bytes;
        Some((ticket, parked.waiter))
    }

    /// Removes one request; `None` if it is not parked.
    pub fn remove(&mut self, ticket: Ticket) -> Option<W> {
        let parked = self.waiting.remove(&ticket)?;
        self.bytes -= parked.bytes;
        Some(parked.waiter)
    }

    /// The number of parked requests.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no request is parked.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The memory of the parked requests, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The limits of all apps together. Atomic counters only: apps share no lock.
#[derive(Debug)]
pub struct Budget {
    count: AtomicUsize,
    bytes: AtomicUsize,
    limits: QueueLimits,
}

impl Budget {
    /// An unused budget.
    pub fn new(limits: QueueLimits) -> Arc<Self> {
        Arc::new(Self {
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            limits,
        })
    }

    /// Reserves one request with `bytes` until the result is dropped.
    pub fn claim(self: &Arc<Self>, bytes: usize) -> Result<Reservation, LimitReached> {
        if !add_within(&self.count, 1, self.limits.count_max) {
            return Err(LimitReached::Count);
        }
        if !add_within(&self.bytes, bytes, self.limits.bytes_max) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(LimitReached::Bytes);
        }
        Ok(Reservation {
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

/// One parked request's part of the budget.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Reservation {
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
