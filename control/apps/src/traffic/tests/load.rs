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
struct Scaled {
    /// The load of the last seconds, in hundredths of a pod.
    load: VecDeque<u32>,
    /// The revision of which its pods are, and the ages of those.
    revision: u32,
    ages: Vec<u32>,
    /// Ready pods of the revision before.
    earlier: u32,
    /// Time since a further pod of the revision was ready, seconds.
    waits: u32,
}

/// An app under load.
struct Loaded {
    world: World,
    /// Pods that its load needs.
    pods: u32,
    /// Time until a pod is ready, seconds; of some revisions none ever is.
    start: u32,
    broken: BTreeSet<u32>,
    targets: BTreeMap<u32, Scaled>,
    own: Scaled,
}

impl Scaled {
    fn ready(&self, start: u32) -> u32 {
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
    fn new(pods: u32, start: u32, spec: &Value) -> Self {
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

    /// Seconds pass. In each, every target with a share has at least half of the pods that it needs.
    fn run(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.world.settle();
            self.second();
            self.check();
            self.world.now += SignedDuration::from_secs(1);
        }
        self.world.settle();
    }

    fn percent(&self, target: Target) -> u32 {
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
            let ready = self
                .world
                .family
                .status(target)
                .map_or(0, |status| status.ready);
            assert!(
                ready * 2 >= needed,
                "{target:?} has {ready} of {needed} pods, {:?}",
                self.world.split()
            );
        }
    }

    fn gradual(pods: u32, start: u32) -> Self {
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

#[test]
fn a_gradual_rollout_under_load_starts_the_pods_of_each_share() {
    for start in [1, 5, 120] {
        let mut app = Loaded::gradual(30, start);
        app.world.release(4);
        app.run(3 * start + 5);
        assert!(app.percent(Target::Own) >= 10, "after {start} s");
        app.run(10 * start + 200);
        assert_eq!(app.world.split(), []);
        assert_eq!(app.own.ready(start), 30);
        assert_eq!(app.world.status().ready_revision, Some(4));
    }
}

#[test]
fn a_revision_that_never_gets_ready_gets_no_request_and_its_rollout_fails() {
    let mut app = Loaded::gradual(30, 3);
    app.broken.insert(4);
    app.world.release(4);
    for _ in 0..700 {
        app.run(1);
        let own = app.percent(Target::Own);
        let is_new = app.own.revision == 4 && app.own.earlier == 0;
        assert!(own == 0 || !is_new, "{own}%");
    }
    assert_eq!(app.world.split(), [(4, 0, true), (3, 100, false)]);
    assert_eq!(app.world.reason(), "RolloutFailed");
    assert_eq!(app.world.status().pods_min, 0, "it may sleep");
}

#[test]
fn after_an_undo_the_child_keeps_the_traffic_until_the_apps_own_pods_are_enough() {
    let mut app = Loaded::gradual(30, 3);
    app.broken.insert(4);
    app.world.release(4);
    app.run(1_500);
    assert_eq!(app.world.status().state, State::Asleep);
    app.world.release(3);
    app.run(30);
    assert_eq!((app.world.split(), app.own.ready(3)), (vec![], 30));
    app.run(200);
    assert_eq!(app.world.children(), Vec::<u32>::new());
}

#[test]
fn all_traffic_returns_to_a_latest_revision_that_slept_or_had_a_small_share() {
    for share in [0, 10] {
        let split = if share == 0 {
            traffic(&[pinned(2, 100)])
        } else {
            traffic(&[pinned(2, 90), latest(10)])
        };
        let mut app = Loaded::new(30, 5, &json!({}));
        app.world.edit(&split);
        app.run(200);
        let own = app.own.ready(5);
        assert!(own <= 3, "{own} pods for {share}%");
        app.world.edit(&traffic(&[latest(100)]));
        app.run(2);
        assert_eq!(app.world.reason(), "RevisionNotReady");
        app.run(10);
        assert_eq!(app.world.split(), []);
        assert_eq!(app.own.ready(5), 30);
        app.run(100);
        assert_eq!(app.world.status().pods_min, 0);
    }
}

#[test]
fn a_share_that_at_most_doubles_is_in_force_at_once() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.world.edit(&traffic(&[pinned(2, 50), latest(50)]));
    app.run(100);
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.world.settle();
    assert_eq!(app.world.split(), [(2, 100, false)]);
    assert_eq!(app.world.floor(2), 30);
}

#[test]
fn a_family_that_falls_asleep_keeps_no_pods_for_a_share_that_waits() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.broken.insert(2);
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.run(300);
    assert_eq!(app.world.reason(), "RevisionNotReady");
    assert_eq!(app.world.floor(2), 30);
    app.pods = 0;
    app.run(200);
    assert_eq!(app.world.split(), [(2, 100, false)]);
    assert_eq!(app.world.floor(2), 0);
}

/// A rollout of revision 4 whose steps are longer than the window, at 90%.
fn at_90_percent() -> Loaded {
    let spec = json!({"rollout": {"stepPercent": 10, "duration": "1000s"}});
    let mut app = Loaded::new(30, 5, &spec);
    app.world.release(4);
    app.run(20);
    while app.percent(Target::Own) < 90 {
        app.run(1);
    }
    app.run(90);
    assert_eq!(app.world.split(), [(4, 90, true), (3, 10, false)]);
    assert!(app.world.family.children[&3].status.clone().unwrap().ready <= 3);
    app
}

#[test]
fn an_undo_late_in_a_rollout_starts_the_pods_of_the_child_first_and_then_the_apps_own() {
    let mut app = at_90_percent();
    app.world.release(3);
    app.run(2);
    assert_eq!(app.percent(Target::Own), 90);
    app.run(100);
    assert_eq!((app.world.split(), app.own.ready(5)), (vec![], 30));
}

#[test]
fn a_further_template_late_in_a_rollout_starts_when_the_child_has_its_pods() {
    let mut app = at_90_percent();
    app.world.release(5);
    app.run(2);
    assert_eq!(app.percent(Target::Own), 90, "of revision 4");
    app.run(8);
    assert_eq!(app.world.split(), [(5, 0, true), (3, 100, false)]);
    app.run(1_500);
    assert_eq!(app.world.split(), []);
}

#[test]
fn a_new_template_takes_no_traffic_to_a_child_that_had_only_a_tag() {
    let tagged = json!({"latestRevision": true, "percent": 100, "tag": "next"});
    let spec = json!({"rollout": {"stepPercent": 10, "duration": "100s"}});
    let mut app = Loaded::new(30, 5, &spec);
    app.world.edit(&traffic(&[tagged]));
    app.run(5);
    assert_eq!(app.world.split(), [(3, 100, true), (3, 0, false)]);
    app.world.release(4);
    app.run(2);
    assert_eq!(app.percent(Target::Own), 100);
    app.run(300);
    assert_eq!(app.world.split(), [(4, 100, true), (4, 0, false)]);
}

#[test]
fn a_template_and_its_canary_applied_at_once_get_no_pods_of_the_revision_before() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.run(200);
    app.world.release(4);
    app.world.edit(&traffic(&[pinned(2, 90), latest(10)]));
    app.world.settle();
    assert!(
        !app.world.family.app.awaits_split(),
        "own pods get no traffic"
    );
    app.broken.insert(4);
    app.run(100);
    assert_eq!(app.world.split(), [(2, 100, false)]);
    assert_eq!(app.world.reason(), "RevisionNotReady");
    app.broken.clear();
    app.run(10);
    assert_eq!(app.world.split(), [(2, 90, false), (4, 10, true)]);
}

#[test]
fn some_pods_that_are_not_ready_delay_a_share_until_the_deadline_and_no_longer() {
    let traffic = traffic(&[pinned(2, 100)]);
    let mut annotated = World::new(&traffic);
    let deadline = ("serving.knative.dev/progress-deadline", "100s");
    let deadline = [deadline].map(|(name, value)| (name.to_owned(), value.to_owned()));
    annotated.family.app.metadata.annotations = Some(deadline.into());
    let mut manifest = World::new(&traffic);
    manifest.family.app.spec.progress_deadline_seconds = 100;
    for mut world in [annotated, manifest] {
        world.report(5, 3, "NewRevisionAvailable");
        world.settle();
        let status = world.child_status(2);
        (status.state, status.ready, status.wanted) = (State::Awake, 4, 5);
        world.settle();
        assert_eq!(world.split(), []);
        for (second, split) in [(30, vec![]), (100, vec![(2, 100, false)])] {
            world.now = plan(&world.family, world.now).due.unwrap();
            assert_eq!(world.now.as_second(), second);
            world.settle();
            assert_eq!(world.split(), split);
        }
    }
}

#[test]
fn nine_of_ten_pods_are_enough() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.report(20, 3, "NewRevisionAvailable");
    world.settle();
    for (ready, split) in [(17, vec![]), (18, vec![(2, 100, false)])] {
        let status = world.child_status(2);
        (status.state, status.ready, status.wanted) = (State::Awake, ready, 20);
        world.settle();
        assert_eq!(world.split(), split);
    }
}

#[test]
fn no_pods_start_for_a_split_that_names_a_missing_revision_and_fewer_when_the_load_falls() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.world.edit(&traffic(&[pinned(2, 50), pinned(9, 50)]));
    app.run(20);
    assert_eq!(app.world.reason(), "RevisionMissing");
    assert_eq!(app.world.floor(2), 0);
    app.broken.insert(2);
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.run(20);
    assert_eq!(app.world.floor(2), 30);
    app.pods = 4;
    app.run(200);
    assert!(app.world.floor(2) <= 8, "twice the load");
}

#[test]
fn a_share_whose_pods_all_fail_keeps_one_pod_after_the_deadline_and_starts_the_others_when_that_is_ready()
 {
    let mut app = Loaded::new(30, 5, &json!({"progressDeadlineSeconds": 100}));
    app.broken.insert(2);
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.run(95);
    assert_eq!(app.world.floor(2), 30);
    app.run(10);
    assert_eq!(app.world.floor(2), 1);
    app.broken.clear();
    app.run(4);
    assert_eq!(app.world.floor(2), 30);
    app.run(10);
    assert_eq!(app.world.split(), [(2, 100, false)]);
}

#[test]
fn a_rollout_of_an_app_with_a_minimum_starts_no_pods_that_no_load_needs() {
    for (pods, min) in [(1, 0), (1, 5), (5, 5), (8, 5)] {
        let rollout = json!({"stepPercent": 10, "duration": "1000s"});
        let spec = json!({"rollout": rollout, "scale": {"min": min}});
        let mut app = Loaded::new(pods, 5, &spec);
        app.run(100);
        app.world.release(4);
        let mut most = 0;
        for _ in 0..1_200 {
            app.run(1);
            most = most.max(app.own.ages.len());
        }
        assert_eq!(app.world.split(), []);
        let most = u32::try_from(most).unwrap();
        assert!(most <= pods.max(min) + 1, "{most} pods, {pods} are needed");
        assert!(
            pods > 1 || most == min.max(1),
            "{most} pods for a load of one"
        );
    }
}

#[test]
fn pods_are_kept_for_no_longer_when_the_clock_is_set_back() {
    let mut app = Loaded::new(30, 5, &json!({}));
    app.world.edit(&traffic(&[pinned(2, 100)]));
    app.run(20);
    assert_eq!(app.world.floor(2), 30);
    app.world.now -= SignedDuration::from_hours(1);
    app.world.settle();
    assert_eq!(app.world.floor(2), 0);
}
