//! Plans of an app under load: its autoscalers and the starts of its pods are models.

use std::collections::VecDeque;

use super::needs::Target;
use super::*;

/// The autoscaler's window, seconds.
const WINDOW: usize = 60;
/// Time without load after which the last pod is removed, seconds.
const IDLE: usize = 90;

/// The pods of a target, and its autoscaler.
#[derive(Debug, Default)]
pub(super) struct Scaled {
    /// The load of the last seconds, in hundredths of a pod.
    load: VecDeque<u32>,
    /// The revision of which its pods are, and the ages of those.
    pub(super) revision: u32,
    pub(super) ages: Vec<u32>,
    /// Ready pods of the revision before.
    pub(super) earlier: u32,
    /// Time since a further pod of the revision was ready, seconds.
    waits: u32,
}

/// An app under load.
pub(super) struct Loaded {
    pub(super) world: World,
    /// Pods that its load needs.
    pub(super) pods: u32,
    /// Time until a pod is ready, seconds; of some revisions none ever is.
    start: u32,
    pub(super) broken: BTreeSet<u32>,
    targets: BTreeMap<u32, Scaled>,
    pub(super) own: Scaled,
}

impl Scaled {
    pub(super) fn ready(&self, start: u32) -> u32 {
        let ready = self.ages.iter().filter(|age| **age >= start);
        u32::try_from(ready.count()).unwrap()
    }

    /// The number of pods that the autoscaler wants: by the average load of the window, or the last until it has slept.
    fn wanted(&self, floor: u32) -> u32 {
        let window = self.load.iter().rev().take(WINDOW);
        let average = window.clone().sum::<u32>() / u32::try_from(window.len().max(1)).unwrap();
        let is_idle = self.load.iter().all(|load| *load == 0);
        let has_pods = !self.ages.is_empty() || self.earlier > 0;
        let last = u32::from(has_pods && !is_idle);
        average.div_ceil(100).max(last).max(floor)
    }

    /// A second with this load passes.
    fn second(&mut self, load: u32) {
        self.load.push_back(load);
        if self.load.len() > IDLE {
            self.load.pop_front();
        }
        for age in &mut self.ages {
            *age += 1;
        }
    }

    fn scale(&mut self, wanted: u32, start: u32, is_held: bool) {
        let wanted_pods = usize::try_from(wanted).unwrap();
        // Those that are not ready are removed first.
        self.ages.sort_unstable_by(|a, b| b.cmp(a));
        self.ages.truncate(wanted_pods);
        let before = self.ready(start);
        if !is_held {
            self.ages.resize(wanted_pods, 0);
        }
        self.earlier = self.earlier.min(wanted.saturating_sub(before));
    }
}

impl Loaded {
    /// Revision 3 has all traffic, and as many pods as that needs.
    pub(super) fn new(pods: u32, start: u32, spec: &Value) -> Self {
        let mut own = Scaled {
            revision: 3,
            ages: vec![start; usize::try_from(pods).unwrap()],
            ..Scaled::default()
        };
        own.load = vec![pods * 100; IDLE].into();
        let mut loaded = Self {
            world: World::new(spec),
            pods,
            start,
            broken: BTreeSet::new(),
            targets: BTreeMap::new(),
            own,
        };
        loaded.run(1);
        loaded
    }

    /// Seconds pass. In each, every target with a share has at least half of the pods that it needs, and the app itself nine of ten:
    /// only a child's share that at most doubles needs none first.
    pub(super) fn run(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.world.settle();
            self.second();
            self.check();
            self.world.now += SignedDuration::from_secs(1);
        }
        self.world.settle();
    }

    pub(super) fn percent(&self, target: Target) -> u32 {
        let traffic = self.world.family.traffic();
        if traffic.is_empty() {
            return if target == Target::Own { 100 } else { 0 };
        }
        let is_it = |row: &&TrafficStatus| match target {
            Target::Own => row.latest,
            Target::Child(number) => !row.latest && row.revision == number,
        };
        traffic.iter().filter(is_it).map(|row| row.percent).sum()
    }

    /// The ready pods of a child.
    pub(super) fn child_pods(&self, number: u32) -> u32 {
        self.targets[&number].ready(self.start)
    }

    fn second(&mut self) {
        self.own_second();
        let children = self.world.children();
        self.targets.retain(|number, _| children.contains(number));
        for number in children {
            let load = self.percent(Target::Child(number)) * self.pods;
            let scaled = self.targets.entry(number).or_default();
            scaled.second(load);
            let start = if self.broken.contains(&number) {
                u32::MAX
            } else {
                self.start
            };
            let child = self.world.family.children.get_mut(&number).unwrap();
            let status = child.status.get_or_insert_default();
            let wanted = scaled.wanted(child.spec.scale.min.unwrap_or(0).max(status.pods_min));
            scaled.scale(wanted, start, false);
            (status.ready, status.wanted) = (scaled.ready(start), wanted);
            status.state = state(status.ready, wanted);
        }
    }

    fn own_second(&mut self) {
        let load = self.percent(Target::Own) * self.pods;
        let number = self.world.family.app.revision_number();
        let own = &mut self.own;
        let old = if self.broken.contains(&own.revision) {
            u32::MAX
        } else {
            self.start
        };
        if own.revision != number {
            own.earlier = own.ready(old).max(own.earlier);
            (own.revision, own.waits) = (number, 0);
            own.ages.clear();
        }
        own.second(load);
        let start = if self.broken.contains(&number) {
            u32::MAX
        } else {
            self.start
        };
        let app = &self.world.family.app;
        let floor = app.status.as_ref().map_or(0, |status| status.pods_min);
        let floor = floor.max(app.spec.scale.min.unwrap_or(0));
        let wanted = own.wanted(floor);
        let before = own.ready(start);
        own.scale(wanted, start, self.world.family.app.holds_rollout());
        let ready = own.ready(start);
        own.waits = if wanted == 0 || ready > before {
            0
        } else {
            own.waits + 1
        };
        let known = self.world.status().ready_revision.unwrap();
        let newest = if ready > 0 { number } else { known };
        let reason = if newest == number && own.earlier == 0 {
            "NewRevisionAvailable"
        } else if own.waits > 600 {
            "ProgressDeadlineExceeded"
        } else {
            "RollingOut"
        };
        let all = ready + own.earlier;
        self.world.report(all, newest, reason);
        let status = self.world.status();
        status.wanted = wanted;
        status.state = state(all, wanted);
    }

    fn check(&self) {
        let targets = self.world.children().into_iter().map(Target::Child);
        for target in targets.chain([Target::Own]) {
            let needed = self.percent(target) * self.pods / 100;
            let enough = match target {
                Target::Own => needed - needed / 10,
                Target::Child(_) => needed.div_ceil(2),
            };
            let ready = self
                .world
                .family
                .status(target)
                .map_or(0, |status| status.ready);
            assert!(
                ready >= enough,
                "{target:?} has {ready} of {needed} pods, {:?}",
                self.world.split()
            );
        }
    }

    pub(super) fn gradual(pods: u32, start: u32) -> Self {
        Self::new(
            pods,
            start,
            &json!({"rollout": {"stepPercent": 10, "duration": "100s"}}),
        )
    }
}

fn state(ready: u32, wanted: u32) -> State {
    match (ready, wanted) {
        (0, 0) => State::Asleep,
        (0, _) => State::Waking,
        _ => State::Awake,
    }
}
