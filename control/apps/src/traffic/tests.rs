//! Plans executed against a model of the store.

mod load;
mod rollout;

use dormouse_cluster::app::{PROGRESSING, TRAFFIC_READY};
use dormouse_cluster::{Mode, State, TrafficStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// An app, its children and the templates of its revisions, as the store has them.
struct World {
    family: Family,
    now: Timestamp,
    /// The next VIP.
    vip: u16,
    events: Vec<&'static str>,
}

fn template(number: u32) -> Template {
    let json = json!({"container": {"name": "app", "image": number.to_string()}, "targetPort": 80});
    serde_json::from_value(json).unwrap()
}

impl World {
    /// The status of the child with this revision.
    fn child_status(&mut self, revision: u32) -> &mut AppStatus {
        let child = self.family.children.get_mut(&revision).unwrap();
        child.status.get_or_insert_default()
    }

    /// An app with three revisions, of which the last is its own, with these fields of its manifest.
    fn new(spec: &Value) -> Self {
        let mut app: App = serde_json::from_value(json!({
            "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
            "metadata": {"name": "web", "namespace": "shop", "uid": "a", "generation": 1},
            "spec": {"vip": "fd00:10::1", "port": 80, "container": {"name": "app", "image": "3"}},
            "status": {"revision": 3, "readyRevision": 3, "templateHash": "x"},
        }))
        .unwrap();
        set(&mut app, spec);
        let mut world = Self {
            family: Family {
                app,
                cluster: Arc::new(Cluster::starting_asleep(1_000)),
                children: BTreeMap::new(),
                templates: (1..=3).map(|number| (number, template(number))).collect(),
                taken: BTreeSet::new(),
            },
            now: Timestamp::UNIX_EPOCH,
            vip: 2,
            events: Vec::new(),
        };
        world.report(0, 3, "NewRevisionAvailable");
        world
    }

    fn status(&mut self) -> &mut AppStatus {
        self.family.app.status.get_or_insert_default()
    }

    /// The apps controller reports so many ready pods of the app, the newest revision that was ready, and its rollout.
    fn report(&mut self, ready: u32, ready_revision: u32, reason: &str) {
        let generation = self.family.app.metadata.generation;
        let status = self.status();
        (status.ready, status.wanted) = (ready, ready);
        status.state = if ready == 0 {
            State::Asleep
        } else {
            State::Awake
        };
        status.mode = Mode::Proxy;
        status.ready_revision = Some(ready_revision);
        status.observed_generation = generation;
        status.reason = None;
        status.conditions.retain(|one| one.type_ != PROGRESSING);
        let is_overdue = reason == "ProgressDeadlineExceeded";
        status.conditions.push(Condition {
            type_: PROGRESSING.to_owned(),
            status: if is_overdue { "False" } else { "True" }.to_owned(),
            reason: reason.to_owned(),
            message: "text".to_owned(),
            observed_generation: generation,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        });
    }

    fn edit(&mut self, spec: &Value) {
        set(&mut self.family.app, spec);
        self.family.app.metadata.generation = self.family.app.metadata.generation.map(|n| n + 1);
    }

    /// The API writes another template, which is this revision.
    fn release(&mut self, number: u32) {
        self.edit(&json!({"container": {"name": "app", "image": number.to_string()}}));
        self.family.templates.insert(number, template(number));
        let status = self.status();
        (status.previous_revision, status.revision) = (status.revision, Some(number));
        status.conditions.retain(|one| one.type_ != PROGRESSING);
    }

    /// All pods that a child wants are ready.
    fn children_ready(&mut self) {
        for child in self.family.children.values_mut() {
            let status = child.status.get_or_insert_default();
            let pods = child.spec.scale.min.unwrap_or(0).max(status.pods_min);
            (status.ready, status.wanted) = (pods, pods);
            status.state = if pods == 0 {
                State::Asleep
            } else {
                State::Awake
            };
        }
    }

    /// One plan, executed; whether it did anything.
    fn step(&mut self) -> bool {
        let plan = plan(&self.family, self.now);
        let is_idle = plan.create.is_empty()
            && plan.update.is_empty()
            && plan.status.is_none()
            && plan.surplus.is_empty();
        for mut child in plan.create {
            child.spec.vip = Some(format!("fd00:10::{:x}", self.vip).parse().unwrap());
            self.vip += 1;
            let number = child.spec.container.image.clone().unwrap().parse().unwrap();
            assert!(self.family.children.insert(number, child).is_none());
        }
        for child in plan.update {
            let number = child.spec.container.image.clone().unwrap().parse().unwrap();
            self.family.children.insert(number, child);
        }
        for surplus in plan.surplus {
            let children = &mut self.family.children;
            children.retain(|_, child| child.key() != surplus.child);
        }
        self.events.extend(plan.event.map(|(_, reason, _)| reason));
        if let Some(status) = plan.status {
            self.family.app.status = Some(*status);
        }
        self.check();
        !is_idle
    }

    /// Plans until nothing is left to do.
    fn settle(&mut self) {
        let steps = (0..50).take_while(|_| self.step()).count();
        assert!(steps < 50, "plans do not end");
    }

    /// The least number of pods of a child for now.
    fn floor(&self, child: u32) -> u32 {
        let status = self.family.children[&child].status.as_ref();
        status.map_or(0, |status| status.pods_min)
    }

    fn split(&self) -> Vec<(u32, u32, bool)> {
        let traffic = self.family.traffic();
        let row = |row: &TrafficStatus| (row.revision, row.percent, row.latest);
        traffic.iter().map(row).collect()
    }

    fn condition(&self) -> Option<(String, String)> {
        let status = self.family.app.status.as_ref()?;
        let condition = status.condition(TRAFFIC_READY)?;
        Some((condition.reason.clone(), condition.message.clone()))
    }

    fn reason(&self) -> String {
        self.condition()
            .map(|(reason, _)| reason)
            .unwrap_or_default()
    }

    fn children(&self) -> Vec<u32> {
        self.family.children.keys().copied().collect()
    }

    /// What is true after each plan: a split adds up, and names VIPs that exist, of the revision that it says.
    fn check(&self) {
        let traffic = self.family.traffic();
        let sum: u32 = traffic.iter().map(|row| row.percent).sum();
        assert!(traffic.is_empty() || sum == 100, "{traffic:?}");
        for row in &traffic {
            if row.latest {
                assert_eq!(Some(row.vip), self.family.app.vip());
            } else {
                let child = self.family.children.get(&row.revision).expect("a child");
                assert_eq!(Some(row.vip), child.vip(), "{traffic:?}");
                let image = child.spec.container.image.clone();
                assert_eq!(image, Some(row.revision.to_string()));
            }
        }
    }
}

/// Sets fields of an app's manifest.
fn set(app: &mut App, fields: &Value) {
    let mut spec = serde_json::to_value(&app.spec).unwrap();
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    app.spec = serde_json::from_value(spec).unwrap();
}

fn latest(percent: u32) -> Value {
    json!({"latestRevision": true, "percent": percent})
}

fn pinned(number: u32, percent: u32) -> Value {
    json!({"revisionName": format!("web-{number}"), "percent": percent})
}

fn traffic(targets: &[Value]) -> Value {
    json!({"traffic": targets})
}

#[test]
fn an_app_whose_traffic_is_not_divided_has_neither_children_nor_a_condition() {
    let mut world = World::new(&json!({}));
    assert!(!world.step());
    assert_eq!(world.condition(), None);
}

#[test]
fn a_sleeping_app_divides_its_traffic_at_once_and_its_children_sleep() {
    let mut world = World::new(&traffic(&[pinned(2, 90), latest(10)]));
    world.settle();
    assert_eq!(world.split(), [(2, 90, false), (3, 10, true)]);
    let child = &world.family.children[&2];
    assert_eq!(child.spec.scale.min, None);
    assert_eq!(child.metadata.name.as_deref(), Some("web-2"));
    assert_eq!(child.parent().unwrap().0, Key::new("shop", "web"));
    let (reason, message) = world.condition().unwrap();
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("InForce", "90% web-2, 10% web-3 (latest)")
    );
    world.edit(&json!({"traffic": []}));
    world.settle();
    assert_eq!((world.split(), world.children()), (vec![], vec![]));
    assert_eq!(world.condition(), None);
    assert_eq!(world.status().split_revision, None);
    assert_eq!(world.events, ["TrafficSplit", "TrafficSplit"]);
}

#[test]
fn under_load_a_child_gets_its_share_when_as_many_pods_are_ready_as_it_takes() {
    let mut world =
        World::new(&json!({"traffic": [pinned(2, 50), latest(50)], "scale": {"max": 9}}));
    world.report(5, 3, "NewRevisionAvailable");
    world.settle();
    assert_eq!(world.split(), []);
    assert_eq!(world.reason(), "RevisionNotReady");
    assert_eq!(world.floor(2), 3);
    world.children_ready();
    world.settle();
    assert_eq!(world.split(), [(2, 50, false), (3, 50, true)]);
    assert_eq!(world.floor(2), 3, "its load is not measured yet");
    let due = plan(&world.family, world.now).due.unwrap();
    assert_eq!(due, world.now + SignedDuration::from_secs(62));
    world.now = due;
    world.settle();
    assert_eq!(world.floor(2), 0, "it may sleep now");
    assert_eq!(world.status().traffic_move, None);
}

#[test]
fn a_child_without_all_its_pods_for_a_known_reason_gets_its_share_with_those_that_are_ready() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.report(3, 3, "NewRevisionAvailable");
    world.settle();
    let status = world.child_status(2);
    (status.ready, status.wanted) = (1, 3);
    world.settle();
    assert_eq!(world.split(), []);
    world.child_status(2).reason = Some("ReadinessProbeFailed".to_owned());
    world.settle();
    assert_eq!(world.split(), [], "the others are starting");
    world.child_status(2).reason = Some("PodsLimited".to_owned());
    world.settle();
    assert_eq!(world.split(), [], "those that are admitted are starting");
    world.now = plan(&world.family, world.now).due.unwrap();
    world.settle();
    assert_eq!(world.split(), [(2, 100, false)]);
}

#[test]
fn the_settings_of_children_follow_their_parent_and_their_template_does_not() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.settle();
    world.edit(&json!({"timeout": "7s", "scale": {"min": 2, "containerConcurrency": 3}}));
    world.release(4);
    world.settle();
    let child = &world.family.children[&2];
    assert_eq!(child.spec.timeout().as_secs(), 7);
    assert_eq!(
        (child.spec.scale.min, child.spec.scale.container_concurrency),
        (Some(2), 3)
    );
    assert_eq!(child.spec.template(), template(2));
    assert_eq!(child.metadata.generation, Some(2));
    assert!(child.spec.traffic.is_empty() && child.spec.vip.is_some());
}

#[test]
fn children_have_the_annotations_of_their_parent_that_are_settings() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    let name = |name: &str| format!("autoscaling.knative.dev/{name}");
    let annotate = |app: &mut App, pods: &str| {
        let annotations = [
            (name("min-scale"), pods.to_owned()),
            ("note".to_owned(), "x".to_owned()),
        ];
        app.metadata.annotations = Some(annotations.into());
    };
    annotate(&mut world.family.app, "2");
    world.settle();
    let min = |world: &World| {
        let child = &world.family.children[&2];
        assert!(
            !child
                .metadata
                .annotations
                .as_ref()
                .unwrap()
                .contains_key("note")
        );
        child.autoscaling(&world.family.cluster).settings.min_scale
    };
    assert_eq!(min(&world), 2);
    annotate(&mut world.family.app, "3");
    assert!(world.step());
    assert_eq!(min(&world), 3);
    assert_eq!(world.family.children[&2].metadata.generation, Some(1));
}

#[test]
fn a_target_without_traffic_sleeps_and_keeps_its_address() {
    let tagged = json!({"revisionName": "web-1", "tag": "old"});
    let mut world = World::new(&json!({"traffic": [latest(100), tagged], "scale": {"min": 2}}));
    world.report(5, 3, "NewRevisionAvailable");
    world.settle();
    assert_eq!(world.split(), [(3, 100, true), (1, 0, false)]);
    assert_eq!(world.family.children[&1].spec.scale.min, Some(0));
    assert_eq!(world.family.traffic()[1].tag.as_deref(), Some("old"));
}

#[test]
fn a_tag_of_the_latest_revision_is_a_child_which_a_new_template_replaces() {
    let tagged = json!({"latestRevision": true, "percent": 0, "tag": "next"});
    let mut world = World::new(&traffic(&[pinned(2, 100), tagged]));
    world.settle();
    assert_eq!(
        world.split(),
        [(2, 100, false), (3, 0, true), (3, 0, false)]
    );
    assert_eq!(world.family.traffic()[2].tag.as_deref(), Some("next"));
    world.release(4);
    world.settle();
    assert_eq!(
        world.split(),
        [(2, 100, false), (4, 0, true), (4, 0, false)]
    );
    assert_eq!(world.children(), [2, 4]);
}

#[test]
fn targets_of_one_revision_are_added_up() {
    let tagged = json!({"revisionName": "web-2", "percent": 10, "tag": "b"});
    let mut world = World::new(&traffic(&[pinned(2, 40), tagged, latest(30), latest(20)]));
    world.settle();
    assert_eq!(world.split(), [(2, 50, false), (3, 50, true)]);
    assert_eq!(world.family.traffic()[0].tag.as_deref(), Some("b"));
}

#[test]
fn a_pinned_latest_revision_stays_pinned_when_the_template_changes() {
    let mut world = World::new(&traffic(&[pinned(3, 100)]));
    world.settle();
    assert_eq!(world.split(), [(3, 100, false)]);
    world.release(4);
    world.settle();
    assert_eq!(world.split(), [(3, 100, false)]);
}

#[test]
fn pods_of_a_new_template_wait_until_the_revision_before_has_its_share() {
    let mut world = World::new(&json!({}));
    world.report(2, 3, "NewRevisionAvailable");
    world.release(4);
    assert!(!world.family.app.awaits_split());
    world.edit(&traffic(&[pinned(3, 100)]));
    world.settle();
    assert!(world.family.app.awaits_split() && world.family.app.holds_rollout());
    world.children_ready();
    world.settle();
    assert!(!world.family.app.awaits_split());
}

#[test]
fn a_missing_revision_and_a_taken_name_are_reported_and_the_split_in_force_stays() {
    let mut world = World::new(&traffic(&[pinned(2, 100)]));
    world.settle();
    world.edit(&traffic(&[pinned(9, 50), latest(50)]));
    world.settle();
    assert_eq!(world.split(), [(2, 100, false)]);
    let (reason, message) = world.condition().unwrap();
    assert_eq!(reason, "RevisionMissing");
    assert!(message.contains("there is no revision web-9"), "{message}");
    world.family.taken.insert(1);
    world.edit(&traffic(&[pinned(1, 50), latest(50)]));
    world.settle();
    assert_eq!(world.reason(), "NameTaken");
    assert!(
        plan(&world.family, world.now).due.is_some(),
        "it is tried again"
    );
    world.family.taken.clear();
    world.settle();
    assert_eq!(world.split(), [(1, 50, false), (3, 50, true)]);
    let warnings = world
        .events
        .iter()
        .filter(|reason| **reason != "TrafficSplit");
    assert_eq!(
        warnings.collect::<Vec<_>>(),
        [&"RevisionMissing", &"NameTaken"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_split_always_adds_up_and_plans_end(operations in prop::collection::vec((0..8_u8, 1..5_u32, 0..101_u32), 1..40)) {
        let mut world = World::new(&json!({}));
        for (operation, number, percent) in operations {
            match operation {
                0 => world.edit(&traffic(&[pinned(number, percent), latest(100 - percent)])),
                1 => world.edit(&json!({"traffic": [], "rollout": {"duration": "10s", "stepPercent": percent.max(1)}})),
                2 => world.edit(&json!({"traffic": [], "rollout": null})),
                3 => world.release(number),
                4 => world.children_ready(),
                5 => {
                    let number = world.family.app.revision_number();
                    world.report(number % 3, number, "NewRevisionAvailable");
                }
                6 => world.report(1, number, "ProgressDeadlineExceeded"),
                _ => world.now += SignedDuration::from_secs(i64::from(percent)),
            }
            world.step();
        }
        world.settle();
        prop_assert!(!world.step(), "a second plan is empty");
        world.edit(&json!({"traffic": [], "rollout": null}));
        world.settle();
        let pods = world.status().pods_min.max(world.status().ready);
        world.report(pods, 1, "NewRevisionAvailable");
        world.settle();
        prop_assert_eq!((world.split(), world.children()), (vec![], vec![]));
        world.now += SignedDuration::from_secs(1_000);
        world.settle();
        let status = world.status();
        prop_assert_eq!((status.pods_min, status.traffic_move.clone()), (0, None));
    }
}
