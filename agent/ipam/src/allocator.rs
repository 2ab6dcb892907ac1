//! Chooses addresses: sparse, in constant time, never one that rests. Pure: time is an argument and every change is a
//! [`Record`], so a replayed journal gives the same allocator.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use crate::lease::{Lease, LeaseKey, NetnsId, State};
use crate::prefix::{NodePrefix, Suffix};
use crate::record::Record;

#[cfg(test)]
mod tests;

/// How long a released address rests by default, so that nobody's late packet meets its next holder.
pub const REST_DEFAULT: Duration = Duration::from_mins(1);

/// Why no address can be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The attachment already has one.
    #[error("{key} already holds {address}")]
    Held {
        /// The attachment.
        key: LeaseKey,
        /// The address it holds.
        address: Ipv6Addr,
    },
    /// The requested address lies elsewhere.
    #[error(
        "requested address {address} is not one that may be requested from {prefix}: {first} to {last} are"
    )]
    OutOfRange {
        /// The address asked for.
        address: Ipv6Addr,
        /// The node's prefix.
        prefix: NodePrefix,
        /// First address that may be requested.
        first: Ipv6Addr,
        /// Last address that may be requested.
        last: Ipv6Addr,
    },
    /// Someone else holds the requested address.
    #[error("requested address {address} is held by {holder}")]
    Taken {
        /// The address asked for.
        address: Ipv6Addr,
        /// Who holds it.
        holder: LeaseKey,
    },
    /// The requested address was released a moment ago.
    #[error("requested address {address} rests for another {left_ms} ms after its release")]
    Resting {
        /// The address asked for.
        address: Ipv6Addr,
        /// Rest that is left, in milliseconds.
        left_ms: u128,
    },
    /// All are held or rest.
    #[error("no address left in {prefix}: {held} held, {resting} resting")]
    Exhausted {
        /// The node's prefix.
        prefix: NodePrefix,
        /// Addresses held.
        held: usize,
        /// Addresses that rest.
        resting: usize,
    },
}

/// Which address an attachment wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asks.
    pub key: LeaseKey,
    /// The pod's namespace.
    pub netns: NetnsId,
    /// A certain address, or any.
    pub address: Option<Ipv6Addr>,
}

/// What is held and what rests in one node prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocator {
    prefix: NodePrefix,
    rest: Duration,
    /// Where the search for the next drawn suffix begins.
    cursor: u32,
    leases: HashMap<Suffix, Lease>,
    keys: HashMap<LeaseKey, Suffix>,
    /// Released suffixes and when they may be leased again; `resting_order` has the same, oldest first.
    resting: HashMap<Suffix, Duration>,
    resting_order: VecDeque<(Suffix, Duration)>,
}

impl Allocator {
    /// An allocator that holds nothing.
    pub fn new(prefix: NodePrefix, rest: Duration) -> Self {
        Self {
            prefix,
            rest,
            cursor: *prefix.drawn().start(),
            leases: HashMap::new(),
            keys: HashMap::new(),
            resting: HashMap::new(),
            resting_order: VecDeque::new(),
        }
    }

    /// The node's prefix.
    pub fn prefix(&self) -> NodePrefix {
        self.prefix
    }

    /// All leases, in no order.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// The lease of an attachment.
    pub fn lease(&self, key: &LeaseKey) -> Option<&Lease> {
        self.keys
            .get(key)
            .and_then(|suffix| self.leases.get(suffix))
    }

    /// Whether one more pod can have an address at `now` (since boot).
    pub fn has_room(&mut self, now: Duration) -> bool {
        self.wake(now);
        self.draw().is_ok()
    }

    /// Chooses an address; nothing changes until the lease's record is applied.
    pub fn plan(&mut self, request: &Request, now: Duration) -> Result<Lease, AllocateError> {
        self.wake(now);
        if let Some(held) = self.lease(&request.key) {
            let address = self.prefix.address(held.suffix);
            return Err(AllocateError::Held {
                key: request.key.clone(),
                address,
            });
        }
        let suffix = match request.address {
            Some(address) => self.requested(address, now)?,
            None => self.draw()?,
        };
        Ok(Lease {
            key: request.key.clone(),
            suffix,
            state: State::Reserved,
            netns: request.netns,
            since: now,
        })
    }

    /// Applies one change; changes of leases that are not there are ignored.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Header { .. } => {}
            Record::Cursor(suffix) => self.cursor = suffix.0,
            Record::Reserve(lease) => self.insert(lease.clone()),
            Record::Live(suffix) => self.step(*suffix, State::Live),
            Record::Release(suffix) => self.step(*suffix, State::Releasing),
            Record::Free(suffix, at) => self.free(*suffix, *at),
        }
    }

    /// The shortest list of changes that leads here from an empty allocator.
    pub fn snapshot(&self) -> Vec<Record> {
        let mut records = Vec::with_capacity(self.leases.len() + self.resting_order.len() + 1);
        records.extend(
            self.resting_order
                .iter()
                .map(|(suffix, until)| Record::Free(*suffix, until.saturating_sub(self.rest))),
        );
        for lease in self.leases.values() {
            records.push(Record::Reserve(Lease {
                state: State::Reserved,
                ..lease.clone()
            }));
            match lease.state {
                State::Reserved => {}
                State::Live => records.push(Record::Live(lease.suffix)),
                State::Releasing => records.push(Record::Release(lease.suffix)),
            }
        }
        records.push(Record::Cursor(Suffix(self.cursor)));
        records
    }

    /// The same place to go on drawing, with nothing held and nothing resting: what a reboot leaves.
    #[must_use]
    pub fn forget_all(&self) -> Self {
        Self {
            cursor: self.cursor,
            ..Self::new(self.prefix, self.rest)
        }
    }

    fn insert(&mut self, lease: Lease) {
        self.wake(lease.since);
        if self.prefix.drawn().contains(&lease.suffix.0) {
            self.cursor = self.after(lease.suffix.0);
        }
        if self.resting.remove(&lease.suffix).is_some() {
            self.resting_order
                .retain(|(suffix, _)| *suffix != lease.suffix);
        }
        self.keys.insert(lease.key.clone(), lease.suffix);
        self.leases.insert(lease.suffix, lease);
    }

    fn step(&mut self, suffix: Suffix, state: State) {
        if let Some(lease) = self.leases.get_mut(&suffix) {
            lease.state = state;
        }
    }

    fn free(&mut self, suffix: Suffix, at: Duration) {
        if let Some(lease) = self.leases.remove(&suffix) {
            self.keys.remove(&lease.key);
        }
        if !self.resting.contains_key(&suffix) {
            let until = at + self.rest;
            self.resting.insert(suffix, until);
            self.resting_order.push_back((suffix, until));
        }
    }

    /// Ends the rest of those whose time has come.
    fn wake(&mut self, now: Duration) {
        while let Some((suffix, _)) = self
            .resting_order
            .front()
            .filter(|(_, until)| *until <= now)
        {
            self.resting.remove(suffix);
            self.resting_order.pop_front();
        }
    }

    fn requested(&self, address: Ipv6Addr, now: Duration) -> Result<Suffix, AllocateError> {
        let range = self.prefix.requestable();
        let Some(suffix) = self.prefix.suffix(address).filter(|s| range.contains(&s.0)) else {
            let ends = (Suffix(*range.start()), Suffix(*range.end()));
            let (first, last) = (self.prefix.address(ends.0), self.prefix.address(ends.1));
            return Err(AllocateError::OutOfRange {
                address,
                prefix: self.prefix,
                first,
                last,
            });
        };
        if let Some(lease) = self.leases.get(&suffix) {
            return Err(AllocateError::Taken {
                address,
                holder: lease.key.clone(),
            });
        }
        match self.resting.get(&suffix) {
            Some(until) => Err(AllocateError::Resting {
                address,
                left_ms: until.saturating_sub(now).as_millis(),
            }),
            None => Ok(suffix),
        }
    }

    /// The next free suffix in sequence. Skips at most as many as are held or rest, and in practice none: a suffix just
    /// passed is the last to be met again.
    fn draw(&self) -> Result<Suffix, AllocateError> {
        let (held, resting) = (self.leases.len(), self.resting.len());
        let mut candidate = Suffix(self.cursor);
        for _ in 0..=held + resting {
            if !self.leases.contains_key(&candidate) && !self.resting.contains_key(&candidate) {
                return Ok(candidate);
            }
            candidate = Suffix(self.after(candidate.0));
            if candidate.0 == self.cursor {
                break;
            }
        }
        Err(AllocateError::Exhausted {
            prefix: self.prefix,
            held,
            resting,
        })
    }

    fn after(&self, suffix: u32) -> u32 {
        let drawn = self.prefix.drawn();
        if suffix >= *drawn.end() {
            *drawn.start()
        } else {
            suffix + 1
        }
    }
}
