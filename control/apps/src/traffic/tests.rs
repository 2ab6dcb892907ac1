//! Plans executed against a model of the store.

mod holds;
mod load;
mod rollout;
mod shares;
mod split;
mod steps;
mod wait;

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
                since: Timestamp::MIN,
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
