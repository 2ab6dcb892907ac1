//! The slots of one app's backends and the queue for them. Pure.
//!
//! Invariants: no configured backend has more requests in flight than the concurrency limit, except those in flight when
//! the limit was lowered; once [`Breaker::next`] has returned `None`, no request is parked while a slot is free; requests
//! get slots in order of arrival.

use std::net::SocketAddrV6;

use dormouse_fleet::clock::Boottime;

use crate::park::{LimitReached, Queue, QueueLimits, Ticket};

/// One app's queue and slots.
#[derive(Debug)]
pub struct Breaker<W> {
    /// Limit of requests in flight per backend; 0: none.
    concurrency: u32,
    slots: Vec<Slots>,
    /// Index where the next search starts: equal backends are used in turn.
    turn: usize,
    queue: Queue<W>,
}

#[derive(Debug)]
struct Slots {
    backend: SocketAddrV6,
    in_flight: u32,
    /// False if the backend was removed. Its count stays until its last request ends, so that a backend that is added
    /// again is not overloaded.
    configured: bool,
    /// The backend refused a connection: until this time it is used only if no other has a free slot.
    failing_until: Boottime,
}

impl<W> Default for Breaker<W> {
    fn default() -> Self {
        Self {
            concurrency: 0,
            slots: Vec::new(),
            turn: 0,
            queue: Queue::default(),
        }
    }
}

impl<W> Breaker<W> {
    /// Sets the limit and the backends. Backends that stay keep their counts.
    pub fn configure(&mut self, concurrency: u32, backends: &[SocketAddrV6]) {
        self.concurrency = concurrency;
        for slots in &mut self.slots {
            slots.configured = false;
        }
        for backend in backends {
            match self
                .slots
                .iter_mut()
                .find(|slots| slots.backend == *backend)
            {
                Some(slots) => slots.configured = true,
                None => self.slots.push(Slots {
                    backend: *backend,
                    in_flight: 0,
                    configured: true,
                    failing_until: Boottime(0),
                }),
            }
        }
        self.slots
            .retain(|slots| slots.configured || slots.in_flight > 0);
    }

    /// A slot for a new request; `None` if it has to be parked by [`Breaker::park`].
    pub fn enter(&mut self, now: Boottime) -> Option<SocketAddrV6> {
        if self.queue.is_empty() {
            self.take_slot(now)
        } else {
            None
        }
    }

    /// Parks a request for which there was no slot. `bytes` is its memory.
    pub fn park(
        &mut self,
        ticket: Ticket,
        bytes: usize,
        waiter: W,
        limits: QueueLimits,
    ) -> Result<(), LimitReached> {
        self.queue.park(ticket, bytes, waiter, limits)
    }

    /// The next parked request and its backend, if a slot is free. To be called until `None` after each
    /// [`Breaker::leave`] and [`Breaker::configure`].
    pub fn next(&mut self, now: Boottime) -> Option<(W, SocketAddrV6)> {
        if self.queue.is_empty() {
            return None;
        }
        let backend = self.take_slot(now)?;
        let (_ticket, waiter) = self.queue.pop()?;
        Some((waiter, backend))
    }

    /// Frees a slot.
    pub fn leave(&mut self, backend: SocketAddrV6) {
        if let Some(index) = self.slots.iter().position(|slots| slots.backend == backend) {
            let slots = &mut self.slots[index];
            slots.in_flight = slots.in_flight.saturating_sub(1);
            if slots.in_flight == 0 && !slots.configured {
                self.slots.swap_remove(index);
            }
        }
    }

    /// Removes a parked request; `None` if it is not parked (any more).
    pub fn unpark(&mut self, ticket: Ticket) -> Option<W> {
        self.queue.remove(ticket)
    }

    /// Removes all parked requests, in order.
    pub fn unpark_all(&mut self) -> Vec<W> {
        std::iter::from_fn(|| self.queue.pop())
            .map(|(_ticket, waiter)| waiter)
            .collect()
    }

    /// Uses a backend only if no other has a free slot, until `until`.
    pub fn avoid(&mut self, backend: SocketAddrV6, until: Boottime) {
        if let Some(slots) = self.slots.iter_mut().find(|slots| slots.backend == backend) {
            slots.failing_until = until;
        }
    }

    /// Whether any backend is not being avoided.
    pub fn has_healthy(&self, now: Boottime) -> bool {
        self.slots
            .iter()
            .any(|slots| slots.configured && slots.failing_until <= now)
    }

    /// Whether any backend is configured.
    pub fn has_backend(&self) -> bool {
        self.slots.iter().any(|slots| slots.configured)
    }

    /// The number of parked requests.
    pub fn parked(&self) -> usize {
        self.queue.len()
    }

    /// Takes a slot of the backend with the fewest requests in flight; failing backends come last.
    fn take_slot(&mut self, now: Boottime) -> Option<SocketAddrV6> {
        let limit = if self.concurrency == 0 {
            u32::MAX
        } else {
            self.concurrency
        };
        let count = self.slots.len();
        let turn = self.turn;
        let free = (0..count)
            .map(|step| (turn + step) % count)
            .filter(|index| {
                let slots = &self.slots[*index];
                slots.configured && slots.in_flight < limit
            });
        let index = free.min_by_key(|index| {
            let slots = &self.slots[*index];
            (slots.failing_until > now, slots.in_flight)
        })?;
        self.turn = (index + 1) % count;
        self.slots[index].in_flight += 1;
        Some(self.slots[index].backend)
    }
}

#[cfg(test)]
mod tests;
