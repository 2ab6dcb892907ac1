//! Limits of wakes and pods, with many apps of two tenants.

use std::borrow::Cow;
use std::sync::Arc;

use dormouse_activator::link::Load;
use dormouse_cluster::{App, AppSpec, AppStatus, Change, Object};

use super::*;
use crate::admission::Shares;
use crate::event::AppRead;

/// Apps whose pods are written and never become ready.
struct Crowd {
    apps: Planner,
    stored: BTreeMap<u32, Arc<App>>,
    /// The `containerConcurrency` of the apps.
    concurrency: u32,
    now: Boottime,
    /// The namespaces of the created pods, in order.
    created: Vec<String>,
    /// Why apps have no ready pod, as activators know it.
    problems: BTreeMap<u32, String>,
    /// The reasons of the recorded events.
    events: Vec<Cow<'static, str>>,
}

impl Crowd {
    fn new(shards: usize, limits: Limits) -> Self {
        let config = Config {
            limits,
            ..world::config()
        };
        let now = Boottime(1_000_000_000_000);
        let mut crowd = Self {
            apps: Planner::new(config, shards, 1),
            stored: BTreeMap::new(),
            concurrency: 0,
            now,
            created: Vec::new(),
            problems: BTreeMap::new(),
            events: Vec::new(),
        };
        crowd.event(Input::Changes(vec![
            (1, Change::Listing),
            (1, Change::Listed),
        ]));
        crowd
    }

    /// Adds sleeping apps of a tenant, with the VIP indexes of the range.
    fn add(&mut self, tenant: &str, vips: std::ops::Range<u32>) {
        for vip in vips {
            let address = std::net::Ipv6Addr::from(0xfd00_0010_u128 << 96 | u128::from(vip));
            let spec: AppSpec = serde_json::from_value(json!({
                "vip": address, "port": 80, "container": {"name": "app"}, "scale": {"containerConcurrency": self.concurrency},
            }))
            .unwrap();
            let mut app = App::new(&format!("app-{vip}"), spec);
            app.metadata.namespace = Some(tenant.to_owned());
            app.metadata.uid = Some(format!("uid-{vip}"));
            app.metadata.resource_version = Some("2".to_owned());
            app.status = Some(AppStatus::default());
            let change = Change::App(app.key(), Some(Box::new(world::stored(&app))));
            self.stored.insert(vip, Arc::new(app));
            self.event(Input::Changes(vec![(2, change)]));
        }
    }

    fn event(&mut self, event: impl Into<Input>) {
        let actions = self.apps.apply(self.now, event);
        self.execute(actions);
    }

    fn execute(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Create { vip, pod } => {
                    let key = pod.key();
                    self.created.push(key.namespace.clone());
                    self.event(Event::Created {
                        vip,
                        pod: key,
                        written: true,
                    });
                }
                Action::Read { vip, .. } => {
                    let read = AppRead::Found(Arc::clone(&self.stored[&vip]));
                    self.event(Event::AppRead { vip, read });
                }
                Action::Route { vip, route, .. } => {
                    let problem = route.and_then(|route| route.problem);
                    self.problems.remove(&vip);
                    self.problems
                        .extend(problem.map(|problem| (vip, problem.message)));
                }
                Action::RecordEvent { reason, .. } => self.events.push(reason),
                _ => {}
            }
        }
    }

    fn demand(&mut self, vips: std::ops::Range<u32>) {
        for vip in vips {
            self.event(Event::Demand { vip, at: self.now });
        }
    }

    /// Waits for the next wakes, as the controller's loop does.
    fn advance(&mut self) {
        let due = self.apps.shared.admission.due();
        self.now = due.unwrap().max(self.now);
        let actions = self.apps.admit(self.now);
        self.execute(actions);
    }

    fn of(&self, tenant: &str) -> usize {
        self.created.iter().filter(|name| *name == tenant).count()
    }

    fn load(&mut self, vip: u32, concurrency: f64) {
        self.now = self.now + Duration::from_secs(1);
        let load = Load {
            vip,
            concurrency,
            requests: concurrency,
        };
        self.event(Input::Load(vec![load]));
        for slice in 0..SLICES {
            let actions = self.apps.slice(self.now, slice);
            self.execute(actions);
        }
    }
}

fn wakes(per_tenant: u32, in_all: u32) -> Limits {
    Limits {
        wakes: Shares { per_tenant, in_all },
        ..Limits::default()
    }
}

#[test]
fn a_flood_of_requests_creates_no_more_pods_than_the_limit_and_says_why() {
    let mut crowd = Crowd::new(1, Limits::default());
    crowd.concurrency = 1;
    crowd.add("shop", 1..2);
    crowd.demand(1..2);
    for _ in 0..10 {
        crowd.load(1, 500.0);
    }
    let record = crowd.apps.record(1);
    assert_eq!(
        record.want, 715,
        "the autoscaler's decision stays Knative's"
    );
    assert_eq!(crowd.created.len(), 100);
    let status = plan::status(record);
    assert_eq!(
        (status.wanted, status.failure.unwrap().reason),
        (100, "PodsLimited".to_owned())
    );
    let explained = crate::explain::explain(record, None, crowd.now).to_string();
    assert!(
        explained.contains("the load wants 715 pods; --pods-per-app allows 100 of one app"),
        "{explained}"
    );
    assert_eq!(crowd.events, ["PodsLimited"]);
}

#[test]
fn without_limits_the_autoscaler_decides_alone() {
    let none = Shares {
        per_tenant: 0,
        in_all: 0,
    };
    let mut crowd = Crowd::new(
        1,
        Limits {
            wakes: none,
            pods_per_app: 0,
            pods: none,
        },
    );
    crowd.concurrency = 1;
    crowd.add("shop", 1..2);
    crowd.demand(1..2);
    for _ in 0..10 {
        crowd.load(1, 500.0);
    }
    assert_eq!(crowd.created.len(), 715);
}

#[test]
fn a_tenants_flood_of_wakes_delays_another_tenant_by_its_share_only() {
    for shards in [1, 4] {
        flood(shards);
    }
}

fn flood(shards: usize) {
    let mut crowd = Crowd::new(shards, wakes(0, 20));
    crowd.add("flood", 1..401);
    crowd.add("shop", 500..505);
    crowd.demand(1..401);
    assert_eq!(crowd.of("flood"), 20);
    crowd.demand(500..505);
    let began = crowd.now;
    while crowd.of("shop") < 5 {
        crowd.advance();
    }
    // Ten turns of 50 ms: five of each tenant.
    assert!(crowd.now.since(began) <= Duration::from_millis(500));
    while crowd.apps.shared.admission.due().is_some() {
        crowd.advance();
    }
    assert_eq!((crowd.of("flood"), crowd.of("shop")), (400, 5));
    assert_eq!(crowd.events, ["WakesLimited", "WakesLimited"]);
}

#[test]
fn a_waiting_wake_is_explained_and_repeated_requests_do_not_repeat_it() {
    let mut crowd = Crowd::new(1, wakes(1, 0));
    crowd.add("shop", 1..3);
    crowd.demand(1..3);
    crowd.demand(1..3);
    assert!(crowd.apps.shared.admission.waits_for(2).is_some());
    let app = Key::new("shop", "app-2");
    let explained = crate::explain::asleep(&app, 2, &crowd.apps, crowd.now).to_string();
    assert!(explained.contains("--wakes-per-tenant"), "{explained}");
    let reason = "WakesLimited: apps wait before they are woken: --wakes-per-tenant is reached";
    assert_eq!(crowd.problems.get(&2).map(String::as_str), Some(reason));
    // Control has answered an activator that asked for the route.
    let (vip, port, at) = (2, 80, crowd.now);
    crowd.event(Event::Want { vip, port, at });
    assert_eq!(crowd.problems.get(&2).map(String::as_str), Some(reason));
    crowd.advance();
    assert_eq!(crowd.created.len(), 2);
    assert!(crowd.problems.is_empty());
    assert_eq!(crowd.apps.shared.admission.due(), None);
}

#[test]
fn an_app_waits_for_the_pods_of_its_tenant_and_gets_the_next_free_one() {
    for shards in [1, 4] {
        waits_for_pods(shards);
    }
}

fn waits_for_pods(shards: usize) {
    let limits = Limits {
        pods: Shares {
            per_tenant: 2,
            in_all: 0,
        },
        ..Limits::default()
    };
    let mut crowd = Crowd::new(shards, limits);
    crowd.add("shop", 1..4);
    crowd.add("other", 10..11);
    crowd.demand(1..4);
    crowd.demand(10..11);
    assert_eq!((crowd.of("shop"), crowd.of("other")), (2, 1));
    assert_eq!(crowd.events, ["PodsLimited"]);
    let gone = crowd.apps.record(1).members.keys().next().unwrap().clone();
    crowd.event(Event::Created {
        vip: 1,
        pod: gone,
        written: false,
    });
    assert_eq!(crowd.of("shop"), 3);
    assert!(!crowd.apps.record(3).members.is_empty());
}
