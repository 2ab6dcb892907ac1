//! The number of pods that apps may have: of one app, of its tenant, and in all. Apps that lack pods because of the last two get them one
//! by one in turn, as pods of others go.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::{Limits, Scope};

/// Why an app has fewer pods than the autoscaler wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// Whose limit it is.
    pub(crate) by: Scope,
    /// The limit, in pods.
    pub(crate) limit: u32,
}

impl Held {
    /// The flag that sets the limit.
    fn flag(self) -> &'static str {
        match self.by {
            Scope::App => "--pods-per-app",
            Scope::Tenant => "--pods-per-tenant",
            Scope::All => "--pods-in-all",
        }
    }

    /// The limit in words, for an app of which the autoscaler wants this many pods.
    pub(crate) fn message(self, want: i32) -> String {
        let (flag, limit) = (self.flag(), self.limit);
        let what = match self.by {
            Scope::App => "of one app",
            Scope::Tenant => "of all apps of the namespace",
            Scope::All => "of all apps",
        };
        format!("the load wants {want} pods; {flag} allows {limit} {what}")
    }
}

/// The pods of all tenants, and the apps that wait for more.
#[derive(Debug)]
pub(crate) struct Pods {
    limits: Limits,
    all: usize,
    tenants: HashMap<Arc<str>, Tenant>,
    /// Tenants with waiting apps, in the order of their turns.
    ring: VecDeque<Arc<str>>,
    /// The apps that wait, with their tenants.
    waiting: BTreeMap<u32, Arc<str>>,
    /// The apps whose turn it is, with their tenants: one pod each is counted as theirs until they take it or give it back.
    turns: BTreeMap<u32, Arc<str>>,
    /// A pod has gone since the last turn that found no room.
    freed: bool,
}

/// A tenant with pods or with waiting apps.
#[derive(Debug, Default)]
struct Tenant {
    pods: usize,
    queue: VecDeque<u32>,
}

impl Pods {
    /// No app has pods.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            all: 0,
            tenants: HashMap::new(),
            ring: VecDeque::new(),
            waiting: BTreeMap::new(),
            turns: BTreeMap::new(),
            freed: false,
        }
    }

    /// The number of an app's pods, those that are being removed included, was `before` and is now `after`.
    pub(crate) fn counted(&mut self, tenant: &str, before: usize, after: usize) {
        if before == after {
            return;
        }
        let name = self.name(tenant);
        let state = self.tenants.entry(Arc::clone(&name)).or_default();
        state.pods = (state.pods + after).saturating_sub(before);
        let idle = state.pods == 0 && state.queue.is_empty();
        self.all = (self.all + after).saturating_sub(before);
        self.freed |= after < before;
        if idle {
            self.tenants.remove(&name);
        }
    }

    /// An app lacks this many pods: how many of them it may create, which are counted with that, and the limit that it meets
    /// after those. While others of its tenant wait it gets none but in its turn, and then one; if it still lacks pods it
    /// waits, behind the others of its tenant.
    pub(crate) fn take(&mut self, tenant: &str, vip: u32, missing: usize) -> (usize, Held) {
        let is_its_turn = missing > 0 && self.turns.remove(&vip).is_some();
        let (room, held) = self.room(tenant);
        let taken = if is_its_turn { 1 } else { missing.min(room) };
        if is_its_turn {
            // There may be room for more.
            self.freed = true;
        } else {
            self.counted(tenant, 0, taken);
        }
        self.lacks(tenant, vip, taken < missing);
        (taken, held)
    }

    /// An app that had its turn and took no pod gives it back.
    pub(crate) fn give_back(&mut self, vip: u32) {
        if let Some(tenant) = self.turns.remove(&vip) {
            self.counted(&tenant, 1, 0);
        }
    }

    /// How many pods an app may add at once out of turn, and the limit that it meets after that.
    fn room(&self, tenant: &str) -> (usize, Held) {
        let state = self.tenants.get(tenant);
        let (pods, waits) = state.map_or((0, false), |state| (state.pods, !state.queue.is_empty()));
        let own = left(self.limits.pods.per_tenant, pods);
        let all = left(self.limits.pods.in_all, self.all);
        let by = if own <= all {
            Scope::Tenant
        } else {
            Scope::All
        };
        let limit = match by {
            Scope::All => self.limits.pods.in_all,
            Scope::App | Scope::Tenant => self.limits.pods.per_tenant,
        };
        let room = if waits { 0 } else { own.min(all) };
        (room, Held { by, limit })
    }

    /// An app lacks pods, or no longer does. One that does waits behind the others of its tenant.
    pub(crate) fn lacks(&mut self, tenant: &str, vip: u32, lacks: bool) {
        match (lacks, self.waiting.contains_key(&vip)) {
            (true, false) => {
                let name = self.name(tenant);
                let state = self.tenants.entry(Arc::clone(&name)).or_default();
                state.queue.push_back(vip);
                if state.queue.len() == 1 {
                    self.ring.push_back(Arc::clone(&name));
                }
                self.waiting.insert(vip, name);
            }
            (false, true) => self.leave(vip),
            _ => {}
        }
    }

    /// The next app that may add a pod, which waits no longer; a tenant's turn ends with it. [`Pods::take`] or
    /// [`Pods::give_back`] follows.
    pub(crate) fn turn(&mut self) -> Option<u32> {
        if !std::mem::take(&mut self.freed) || left(self.limits.pods.in_all, self.all) == 0 {
            return None;
        }
        for _ in 0..self.ring.len() {
            let name = self.ring.pop_front()?;
            let Some(tenant) = self.tenants.get_mut(&name) else {
                continue;
            };
            if left(self.limits.pods.per_tenant, tenant.pods) == 0 {
                self.ring.push_back(name);
                continue;
            }
            let vip = tenant.queue.pop_front();
            if !tenant.queue.is_empty() {
                self.ring.push_back(Arc::clone(&name));
            }
            if let Some(vip) = vip {
                self.waiting.remove(&vip);
                tenant.pods += 1;
                self.all += 1;
                self.turns.insert(vip, name);
                // There may be room for more.
                self.freed = true;
                return Some(vip);
            }
        }
        None
    }

    fn leave(&mut self, vip: u32) {
        let Some(name) = self.waiting.remove(&vip) else {
            return;
        };
        let Some(tenant) = self.tenants.get_mut(&name) else {
            return;
        };
        tenant.queue.retain(|other| *other != vip);
        if tenant.queue.is_empty() {
            let idle = tenant.pods == 0;
            self.ring.retain(|other| *other != name);
            if idle {
                self.tenants.remove(&name);
            }
        }
    }

    fn name(&self, tenant: &str) -> Arc<str> {
        let known = self.tenants.get_key_value(tenant);
        known.map_or_else(|| tenant.into(), |(name, _)| Arc::clone(name))
    }
}

/// What a limit leaves; 0: there is none.
fn left(limit: u32, used: usize) -> usize {
    match usize::try_from(limit) {
        Ok(limit @ 1..) => limit.saturating_sub(used),
        _ => usize::MAX,
    }
}

#[cfg(test)]
mod tests;
