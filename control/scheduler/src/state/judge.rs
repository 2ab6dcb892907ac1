//! The answers to the queue: gates and queueing hints of the pod's profile.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_scheduler_decide::queue::{Change, Event, Hint, gate, hint};
use dormouse_scheduler_decide::{DEFAULT_SCHEDULER, Plugin, Profile, Snapshot};

use crate::queue::{Judge, Waiting};

/// The profiles, by the name of their scheduler.
#[derive(Debug)]
pub(super) struct Profiles(BTreeMap<String, Profile>);

impl Profiles {
    pub(super) fn new(profiles: &[Profile]) -> Self {
        let named = |profile: &Profile| (profile.name().to_owned(), profile.clone());
        Self(profiles.iter().map(named).collect())
    }

    pub(super) fn has(&self, scheduler: &str) -> bool {
        self.0.contains_key(scheduler)
    }

    pub(super) fn get(&self, scheduler: &str) -> Option<&Profile> {
        self.0.get(scheduler)
    }

    /// The scheduler whose profile explains pods of others.
    pub(super) fn any(&self) -> &str {
        let named = self.0.get_key_value(DEFAULT_SCHEDULER);
        let first = named.or_else(|| self.0.first_key_value());
        first.map_or(DEFAULT_SCHEDULER, |(name, _)| name)
    }

    /// The answers for the pods of a cluster.
    pub(super) fn judge<'a>(&'a self, cluster: &'a Snapshot) -> Answers<'a> {
        Answers {
            profiles: &self.0,
            cluster,
        }
    }
}

/// The answers for the pods of a cluster.
pub(super) struct Answers<'a> {
    profiles: &'a BTreeMap<String, Profile>,
    cluster: &'a Snapshot,
}

impl Judge for Answers<'_> {
    fn is_gated(&self, waiting: &Waiting) -> bool {
        let profile = self.profiles.get(&*waiting.scheduler);
        profile.is_some_and(|profile| gate(profile, &waiting.pod).is_some())
    }

    fn hint(
        &self,
        waiting: &Waiting,
        rejectors: &BTreeSet<Plugin>,
        event: Event,
        change: Change<'_>,
    ) -> Hint {
        let Some(profile) = self.profiles.get(&*waiting.scheduler) else {
            return Hint::Skip;
        };
        hint(
            (profile, self.cluster),
            &waiting.pod,
            rejectors,
            event,
            change,
        )
    }
}
