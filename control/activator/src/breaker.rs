//! Slots of one app's backends and the line before them: who goes where, and when. Pure.
//!
//! Always true: no listed backend has more in flight than the concurrency allows (except what was in
//! flight when the limit was lowered); nobody is parked while a slot is free, once [`Breaker::next`]
//! has been drained; who came first goes first.

use std::net::SocketAddrV6;

use dormouse_fleet::clock::Boottime;

use crate::park::{Full, Queue, Room, Ticket};

/// One app's queue and slots.
#[derive(Debug)]
pub struct Breaker<W> {
    /// Requests in flight per backend; 0 for no limit.
    concurrency: u32,
    slots: Vec<Slots>,
    /// Where the next search starts, so that equals take turns.
    turn: usize,
    queue: Queue<W>,
}

#[derive(Debug)]
struct Slots {
    backend: SocketAddrV6,
    in_flight: u32,
    /// False when control has taken the backend out: it stays until its last request ends,
    /// so that a backend that comes back is not given more than it can bear.
    listed: bool,
    /// Until then it is asked only when no other can be: it refused a connection.
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
    /// Takes the wanted limit and backends; counts of those that stay are kept.
    pub fn configure(&mut self, concurrency: u32, backends: &[SocketAddrV6]) {
        self.concurrency = concurrency;
        for slots in &mut self.slots {
            slots.listed = false;
        }
        for backend in backends {
            match self
                .slots
                .iter_mut()
                .find(|slots| slots.backend == *backend)
            {
                Some(slots) => slots.listed = true,
                None => self.slots.push(Slots {
                    backend: *backend,
                    in_flight: 0,
                    listed: true,
                    failing_until: Boottime(0),
                }),
            }
        }
        self.slots
            .retain(|slots| slots.listed || slots.in_flight > 0);
    }

    /// A slot for a request that just came; `None` when it has to [`Breaker::park`].
    pub fn enter(&mut self, now: Boottime) -> Option<SocketAddrV6> {
        if self.queue.is_empty() {
            self.take_slot(now)
        } else {
            None
        }
    }

    /// Parks a request for which there was no slot. `bytes` is the memory that it holds.
    pub fn park(
        &mut self,
        ticket: Ticket,
        bytes: usize,
        waiter: W,
        room: Room,
    ) -> Result<(), Full> {
        self.queue.park(ticket, bytes, waiter, room)
    }

    /// The next parked request and its backend, while there is a slot. Call until `None` after each
    /// [`Breaker::leave`] and [`Breaker::configure`].
    pub fn next(&mut self, now: Boottime) -> Option<(W, SocketAddrV6)> {
        if self.queue.is_empty() {
            return None;
        }
        let backend = self.take_slot(now)?;
        let (_ticket, waiter) = self.queue.pop()?;
        Some((waiter, backend))
    }

    /// Gives a slot back.
    pub fn leave(&mut self, backend: SocketAddrV6) {
        if let Some(index) = self.slots.iter().position(|slots| slots.backend == backend) {
            let slots = &mut self.slots[index];
            slots.in_flight = slots.in_flight.saturating_sub(1);
            if slots.in_flight == 0 && !slots.listed {
                self.slots.swap_remove(index);
            }
        }
    }

    /// Takes a parked request out whose client left; `None` when it is not parked (any more).
    pub fn give_up(&mut self, ticket: Ticket) -> Option<W> {
        self.queue.remove(ticket)
    }

    /// Takes everybody out of the line, in order: the app is gone.
    pub fn dismiss(&mut self) -> Vec<W> {
        std::iter::from_fn(|| self.queue.pop())
            .map(|(_ticket, waiter)| waiter)
            .collect()
    }

    /// Avoids a backend that refused a connection, where another can be had.
    pub fn avoid(&mut self, backend: SocketAddrV6, until: Boottime) {
        if let Some(slots) = self.slots.iter_mut().find(|slots| slots.backend == backend) {
            slots.failing_until = until;
        }
    }

    /// Whether there is a backend that is not being avoided.
    pub fn has_sound(&self, now: Boottime) -> bool {
        self.slots
            .iter()
            .any(|slots| slots.listed && slots.failing_until <= now)
    }

    /// Whether there is any backend.
    pub fn has_backend(&self) -> bool {
        self.slots.iter().any(|slots| slots.listed)
    }

    /// Requests parked.
    pub fn parked(&self) -> usize {
        self.queue.len()
    }

    /// The free backend with the fewest requests; those that fail come last.
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
                slots.listed && slots.in_flight < limit
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
