//! Wakes that wait for their turn: at most so many begin a second per tenant and in all, one of each tenant in turn.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use dormouse_fleet::Boottime;

use super::bucket::Bucket;
use super::{EVENT_INTERVAL, Scope, Shares};

/// The wakes that wait, and the rates of their tenants. Nothing is lost: an app that waits stays wanted until it is admitted.
#[derive(Debug)]
pub(crate) struct Wakes {
    rates: Shares,
    all: Bucket,
    tenants: HashMap<Arc<str>, Tenant>,
    /// The apps that wait, with their tenants: a second request for one changes nothing.
    waiting: HashMap<u32, Arc<str>>,
    /// Tenants with waiting apps and a token, in the order of their turns.
    ring: VecDeque<Arc<str>>,
    /// Tenants with waiting apps and no token, by the time of their next one.
    resting: BTreeSet<(Boottime, Arc<str>)>,
}

/// A tenant with waiting apps, or whose bucket is not full.
#[derive(Debug, Default)]
struct Tenant {
    bucket: Bucket,
    queue: VecDeque<u32>,
    /// It has no token: it is one of [`Wakes::resting`].
    rests: bool,
    /// When an event about its waiting wakes was recorded last.
    announced: Option<Boottime>,
}

impl Wakes {
    /// No wake waits.
    pub(crate) fn new(rates: Shares) -> Self {
        Self {
            rates,
            all: Bucket::default(),
            tenants: HashMap::new(),
            waiting: HashMap::new(),
            ring: VecDeque::new(),
            resting: BTreeSet::new(),
        }
    }

    /// An app of a tenant wants to wake: [`Wakes::admit`] returns it when it may. Returns whether it did not want to before.
    pub(crate) fn want(&mut self, tenant: &str, vip: u32) -> bool {
        if self.waiting.contains_key(&vip) {
            return false;
        }
        let name = match self.tenants.get_key_value(tenant) {
            Some((name, _)) => Arc::clone(name),
            None => tenant.into(),
        };
        self.waiting.insert(vip, Arc::clone(&name));
        let state = self.tenants.entry(Arc::clone(&name)).or_default();
        state.queue.push_back(vip);
        if state.queue.len() == 1 {
            // Without a token it moves to the resting ones at its turn.
            self.ring.push_back(name);
        }
        true
    }

    /// The next app that may wake now.
    pub(crate) fn admit(&mut self, now: Boottime) -> Option<u32> {
        while let Some((at, _)) = self.resting.first()
            && *at <= now
        {
            let (_, name) = self.resting.pop_first()?;
            if let Some(tenant) = self.tenants.get_mut(&name) {
                tenant.rests = false;
            }
            self.ring.push_back(name);
        }
        if self.all.ready_at(self.rates.in_all) > now {
            return None;
        }
        loop {
            let name = self.ring.pop_front()?;
            let Some(tenant) = self.tenants.get_mut(&name) else {
                continue;
            };
            if !tenant.bucket.take(self.rates.per_tenant, now) {
                tenant.rests = true;
                let at = tenant.bucket.ready_at(self.rates.per_tenant);
                self.resting.insert((at, name));
                continue;
            }
            let vip = tenant.queue.pop_front();
            if !tenant.queue.is_empty() {
                self.ring.push_back(name);
            }
            if let Some(vip) = vip {
                self.all.take(self.rates.in_all, now);
                self.waiting.remove(&vip);
                return Some(vip);
            }
        }
    }

    /// The time at which [`Wakes::admit`] has another app; none while no app waits.
    pub(crate) fn due(&self) -> Option<Boottime> {
        let tenant = match (self.ring.is_empty(), self.resting.first()) {
            (false, _) => Boottime(0),
            (true, Some((at, _))) => *at,
            (true, None) => return None,
        };
        Some(tenant.max(self.all.ready_at(self.rates.in_all)))
    }

    /// The limit that an app waits for; none if it does not wait.
    pub(crate) fn waits_for(&self, vip: u32) -> Option<Scope> {
        let tenant = self.tenants.get(self.waiting.get(&vip)?)?;
        Some(if tenant.rests {
            Scope::Tenant
        } else {
            Scope::All
        })
    }

    /// The number of apps that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether an event about a tenant's waiting wakes is due: at most one a minute.
    pub(crate) fn announce(&mut self, tenant: &str, now: Boottime) -> bool {
        let Some(tenant) = self.tenants.get_mut(tenant) else {
            return false;
        };
        let due = !tenant.was_announced(now);
        if due {
            tenant.announced = Some(now);
        }
        due
    }

    /// Forgets tenants that have no waiting app and a full bucket: from then on they cost nothing.
    pub(crate) fn forget_idle(&mut self, now: Boottime) {
        self.tenants.retain(|_, tenant| {
            !tenant.queue.is_empty() || !tenant.bucket.is_full(now) || tenant.was_announced(now)
        });
    }
}

impl Tenant {
    fn was_announced(&self, now: Boottime) -> bool {
        self.announced
            .is_some_and(|at| now.since(at) < EVENT_INTERVAL)
    }
}

#[cfg(test)]
mod tests;
