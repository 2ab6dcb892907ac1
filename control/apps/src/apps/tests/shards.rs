//! Several shards decide as one does, in whatever order their loops run, and limits hold over all of them.

use dormouse_activator::link::Load;
use dormouse_cluster::{App, AppSpec, AppStatus, Change, Object};
use dormouse_fleet::proto::{self, PodStatus, pod_status::Phase};
use dormouse_fleet::root::Event as FleetEvent;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::admission::Shares;
use crate::event::AppRead;

/// The number of apps.
const APPS: u16 = 6;
/// An app that is recreated gets the other one of its two VIPs.
const OTHER_VIP: u32 = 1_000;

/// A store, two nodes and activators, with a controller of some shards.
struct Site {
    planner: Planner,
    now: Boottime,
    revision: u64,
    /// By number.
    apps: BTreeMap<u16, App>,
    recreations: u64,
    /// By the VIP of their app and their own number: the names are random.
    pods: BTreeMap<(u32, u64), Pod>,
    pods_created: u64,
    /// What is to be done, by VIP.
    todo: BTreeMap<u32, Vec<Action>>,
    /// What was decided, by VIP, without random names and versions.
    log: BTreeMap<u32, Vec<String>>,
}

/// Numbers that decide which shard is next.
struct Order(u64);

impl Order {
    fn next(&mut self) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 40).unwrap()
    }
}

fn vip_of(app: &App) -> u32 {
    let address = app.vip().unwrap();
    u32::from(address.segments()[7])
}

fn node_of(vip: u32) -> String {
    format!("n{}", vip % 2)
}

impl Site {
    fn new(shards: usize, limits: Limits) -> Self {
        let config = Config {
            limits,
            ..world::config()
        };
        let mut site = Self {
            planner: Planner::new(config, shards, 1),
            now: Boottime(1_000_000_000_000),
            revision: 1,
            apps: BTreeMap::new(),
            recreations: 0,
            pods: BTreeMap::new(),
            pods_created: 0,
            todo: BTreeMap::new(),
            log: BTreeMap::new(),
        };
        site.apps = (1..=APPS)
            .map(|number| (number, site.app(number, u32::from(number))))
            .collect();
        site
    }

    fn app(&self, number: u16, vip: u32) -> App {
        let spec: AppSpec = serde_json::from_value(json!({
            "vip": format!("fd00:10::{vip:x}"), "port": 80, "container": {"name": "app"},
            "scale": {"window": "6s", "targetBurstCapacity": 0, "target": 10, "max": 4},
        }))
        .unwrap();
        let mut app = App::new(&format!("app-{number}"), spec);
        app.metadata.namespace = Some(format!("t{}", number % 2));
        app.metadata.uid = Some(format!("uid-{number}-{}", self.recreations));
        app
    }

    /// What happens outside the controller in one step.
    fn step(&mut self, step: u8, number: u16) -> Vec<Input> {
        let index = number % APPS + 1;
        let app = self.apps.get(&index);
        let vip = app.map_or(u32::from(index), vip_of);
        let at = self.now;
        match step {
            0 | 1 => vec![Event::Demand { vip, at }.into()],
            2 => vec![Input::Fleet(FleetEvent::Woke {
                node: node_of(vip),
                vip,
                at,
                port: 80,
                protocol: 6,
            })],
            3 => {
                let concurrency = f64::from(number % 50);
                let load = |vip| Load {
                    vip,
                    concurrency,
                    requests: concurrency,
                };
                vec![Input::Load(
                    self.apps.values().map(vip_of).map(load).collect(),
                )]
            }
            4 => vec![Input::Fleet(FleetEvent::Wanted {
                vips: (1..=12).collect(),
            })],
            5 | 6 => self.reports(vip, Phase::Running, usize::MAX),
            7 => self.reports(vip, Phase::Failed, 1),
            8 => vec![Event::Want { vip, port: 80, at }.into()],
            9 => vec![Input::Fleet(FleetEvent::NodeDown {
                node: node_of(number.into()),
            })],
            10 => vec![Input::Fleet(FleetEvent::NodeUp {
                node: node_of(number.into()),
                status: proto::NodeStatus::default(),
                boot_id: String::new(),
            })],
            11 => self.recreate(index),
            12 => {
                // The controller misses it, and gets a list.
                drop(self.recreate(index));
                self.list()
            }
            13 => vec![Input::NodesOverdue],
            _ => self.list(),
        }
    }

    fn reports(&mut self, vip: u32, phase: Phase, most: usize) -> Vec<Input> {
        let of_app = self.pods.range((vip, 0)..=(vip, u64::MAX));
        let running = of_app.filter(|(_, pod)| pod::observe(pod).ended.is_none());
        let report = |((_, number), pod): (&(u32, u64), &Pod)| {
            let mut status = PodStatus {
                namespace: pod.key().namespace,
                name: pod.key().name,
                uid: pod.metadata.uid.clone().unwrap(),
                address: format!("2001:db8::{number:x}"),
                ready: phase == Phase::Running,
                ..Default::default()
            };
            status.set_phase(phase);
            Input::Fleet(FleetEvent::Pod {
                node: node_of(vip),
                status,
            })
        };
        running.take(most).map(report).collect()
    }

    /// An app is deleted and created again, with its other VIP.
    fn recreate(&mut self, number: u16) -> Vec<Input> {
        self.recreations += 1;
        let before = vip_of(&self.apps[&number]);
        let vip = if before > OTHER_VIP {
            before - OTHER_VIP
        } else {
            before + OTHER_VIP
        };
        let app = self.app(number, vip);
        let key = app.key();
        self.apps.insert(number, app);
        self.revision += 1;
        let deleted = Input::Changes(vec![(self.revision, Change::App(key, None))]);
        vec![deleted, self.app_changed(number)]
    }

    fn app_changed(&mut self, number: u16) -> Input {
        self.revision += 1;
        let app = self.apps.get_mut(&number).unwrap();
        app.metadata.resource_version = Some(self.revision.to_string());
        let change = Change::App(app.key(), Some(Box::new(world::stored(app))));
        Input::Changes(vec![(self.revision, change)])
    }

    fn pod_changed(&mut self, key: Key, pod: Option<Pod>) -> Input {
        self.revision += 1;
        Input::Changes(vec![(self.revision, Change::Pod(key, pod.map(Arc::new)))])
    }

    fn list(&mut self) -> Vec<Input> {
        self.revision += 1;
        let nodes = [0, 1]
            .map(|node| Change::Node(Key::cluster_scoped(node_of(node)), Some(Arc::default())));
        let apps = self.apps.values_mut().map(|app| {
            app.metadata
                .resource_version
                .get_or_insert_with(|| "1".to_owned());
            Change::App(app.key(), Some(Box::new(world::stored(app))))
        });
        let apps: Vec<Change> = apps.collect();
        let pods = self.pods.values();
        let pods = pods.map(|pod| Change::Pod(pod.key(), Some(Arc::new(pod.clone()))));
        let objects = nodes.into_iter().chain(apps).chain(pods);
        let all = [Change::Listing]
            .into_iter()
            .chain(objects)
            .chain([Change::Listed]);
        vec![Input::Changes(
            all.map(|change| (self.revision, change)).collect(),
        )]
    }

    /// Handles inputs and all that follows; `order` decides which shard and which app is next.
    fn run(&mut self, mut inputs: Vec<Input>, order: &mut Order) {
        while !inputs.is_empty() {
            for input in inputs {
                let actions = self.planner.accept(input);
                self.decided(actions);
            }
            while let Some(shard) = self.planner.busy(order.next()) {
                let actions = self.planner.step(shard, self.now);
                self.decided(actions);
            }
            let mut todo: Vec<_> = std::mem::take(&mut self.todo).into_iter().collect();
            todo.sort_by_key(|_| order.next());
            inputs = todo
                .into_iter()
                .flat_map(|(_, actions)| self.execute_all(actions))
                .collect();
        }
    }

    /// Executes the actions about one app. The changes of the store are one batch, so that pods which differ only in their
    /// random names stay alike.
    fn execute_all(&mut self, actions: Vec<Action>) -> Vec<Input> {
        let (mut batch, mut others) = (Vec::new(), Vec::new());
        for input in actions.into_iter().flat_map(|action| self.execute(action)) {
            match input {
                Input::Changes(changes) => batch.extend(changes),
                other => others.push(other),
            }
        }
        let changes = (!batch.is_empty()).then_some(Input::Changes(batch));
        changes.into_iter().chain(others).collect()
    }

    fn second(&mut self, order: &mut Order) {
        self.now = self.now + Duration::from_secs(1);
        for slice in 0..SLICES {
            self.planner.queue_slice(slice);
        }
        // Any input: the queues are handled with it.
        self.run(vec![Input::Load(Vec::new())], order);
    }

    fn decided(&mut self, actions: Vec<Action>) {
        for action in actions {
            let Some((vip, entry)) = self.entry(&action) else {
                continue;
            };
            self.log.entry(vip).or_default().extend(entry);
            self.todo.entry(vip).or_default().push(action);
        }
    }

    /// The VIP of an action, and its entry in the log.
    fn entry(&self, action: &Action) -> Option<(u32, Option<String>)> {
        let text = |entry: &crate::action::Entry| {
            let backends = entry.backends.len();
            format!(
                "{:?} {backends} {} {}",
                entry.mode, entry.asleep, entry.settle
            )
        };
        let (vip, line) = match action {
            Action::Create { vip, .. } => (vip, "create".to_owned()),
            Action::Read { vip, app } => (vip, format!("read {app}")),
            Action::Publish {
                vip, status, entry, ..
            } => {
                let failure = status.failure.as_ref().map(|failure| &failure.reason);
                let status = (
                    status.state,
                    status.mode,
                    status.ready,
                    status.wanted,
                    status.last_wake,
                    failure,
                );
                (
                    vip,
                    format!("publish {status:?} {:?}", entry.as_ref().map(text)),
                )
            }
            Action::Announce { vip, entry, .. } => (vip, format!("announce {}", text(entry))),
            Action::Absent { vip } => (vip, "absent".to_owned()),
            Action::Withdraw { vip, .. } => (vip, "withdraw".to_owned()),
            Action::Settle { vip, .. } => (vip, "settle".to_owned()),
            Action::Delete { vip, .. } => (vip, "delete".to_owned()),
            Action::Route { vip, route, .. } => {
                let route = route
                    .as_ref()
                    .map(|route| (&route.name, route.serving, route.backends.len()));
                (vip, format!("route {route:?}"))
            }
            Action::PodStatus { pod, .. } => return Some((self.number_of(&pod.key())?.0, None)),
            _ => return None,
        };
        Some((*vip, Some(line)))
    }

    fn number_of(&self, pod: &Key) -> Option<(u32, u64)> {
        let mut all = self.pods.iter();
        all.find(|(_, other)| other.key() == *pod)
            .map(|(number, _)| *number)
    }

    /// Executes an action; returns what follows from it.
    fn execute(&mut self, action: Action) -> Vec<Input> {
        match action {
            Action::Read { vip, .. } => {
                let app = self.apps.values().find(|app| vip_of(app) == vip);
                let found = app.map(|app| AppRead::Found(Arc::new(app.clone())));
                let read = found.unwrap_or(AppRead::Absent);
                vec![Event::AppRead { vip, read }.into()]
            }
            Action::Create { vip, mut pod } => {
                pod.spec.as_mut().unwrap().node_name = Some(node_of(vip));
                self.pods_created += 1;
                let key = pod.key();
                self.pods.insert((vip, self.pods_created), (*pod).clone());
                let changed = self.pod_changed(key.clone(), Some(*pod));
                vec![
                    changed,
                    Event::Created {
                        vip,
                        pod: key,
                        written: true,
                    }
                    .into(),
                ]
            }
            Action::Publish { vip, status, .. } => self.publish(vip, &status),
            Action::Settle { vip, version } => vec![Event::Settled { vip, version }.into()],
            Action::Delete { vip, pod } => {
                let number = self.number_of(&pod);
                number.and_then(|number| self.pods.remove(&number));
                let changed = self.pod_changed(pod.clone(), None);
                vec![
                    changed,
                    Event::Deleted {
                        vip,
                        pod,
                        gone: true,
                    }
                    .into(),
                ]
            }
            Action::PodStatus { pod, status, .. } => {
                let key = pod.key();
                let number = self.number_of(&key);
                let pod = number.and_then(|number| self.pods.get_mut(&number));
                let changed = pod.map(|pod| {
                    pod::write_status(pod, &status, Timestamp::UNIX_EPOCH);
                    pod.clone()
                });
                let changed = changed.map(|pod| self.pod_changed(key.clone(), Some(pod)));
                changed
                    .into_iter()
                    .chain([Input::StatusWritten { pod: key }])
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn publish(&mut self, vip: u32, status: &crate::action::Status) -> Vec<Input> {
        let app = self.apps.iter_mut().find(|(_, app)| vip_of(app) == vip);
        let Some((number, app)) = app else {
            return vec![Event::Published { vip, app: None }.into()];
        };
        app.status = Some(AppStatus {
            state: status.state,
            mode: status.mode,
            ready: status.ready,
            wanted: status.wanted,
            ..AppStatus::default()
        });
        let number = *number;
        let changed = self.app_changed(number);
        let app = self.apps.get(&number).cloned().map(Arc::new);
        vec![changed, Event::Published { vip, app }.into()]
    }

    /// The state of each app in the store, and the number of its pods.
    fn state(&self) -> Vec<(u32, String, usize)> {
        let state = |app: &App| {
            let vip = vip_of(app);
            let pods = self.pods.range((vip, 0)..=(vip, u64::MAX)).count();
            (vip, format!("{:?}", app.status), pods)
        };
        self.apps.values().map(state).collect()
    }
}

/// Runs steps in rounds of one second at most.
fn played(
    shards: usize,
    limits: Limits,
    rounds: &[Vec<(u8, u16)>],
    seed: u64,
    check: impl Fn(&Site),
) -> Site {
    let (mut site, mut order) = (Site::new(shards, limits), Order(seed));
    let list = site.list();
    site.run(list, &mut order);
    for round in rounds {
        let inputs = round
            .iter()
            .flat_map(|(step, number)| site.step(*step, *number))
            .collect();
        site.run(inputs, &mut order);
        site.second(&mut order);
        check(&site);
    }
    site
}

#[test]
fn an_app_that_comes_back_with_another_vip_leaves_nothing_at_the_old_one() {
    for shards in [1, 2, 5] {
        let (mut site, mut order) = (Site::new(shards, Limits::default()), Order(1));
        let mut start = site.list();
        start.extend(site.step(0, 2));
        site.run(start, &mut order);
        let old = vip_of(&site.apps[&3]);
        let mut inputs = site.recreate(3);
        let other = vip_of(&site.apps[&3]);
        drop(site.recreate(3));
        inputs.extend(site.list());
        site.run(inputs, &mut order);
        assert_eq!(vip_of(&site.apps[&3]), old);
        assert_eq!(
            site.log[&other].last().unwrap(),
            "withdraw",
            "{shards} shards"
        );
    }
}

fn rounds() -> impl Strategy<Value = Vec<Vec<(u8, u16)>>> {
    let round = prop::collection::vec((0u8..15, any::<u16>()), 0..6);
    prop::collection::vec(round, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn several_shards_decide_as_one_does_in_any_order_of_their_loops(
        rounds in rounds(),
        shards in 2usize..8,
        seed in any::<u64>(),
    ) {
        let one = played(1, Limits::default(), &rounds, 0, |_| {});
        let several = played(shards, Limits::default(), &rounds, seed, |_| {});
        prop_assert_eq!(one.log.len(), several.log.len());
        for (vip, log) in &one.log {
            let other = several.log.get(vip).map(Vec::as_slice).unwrap_or_default();
            let differs = (0..log.len().max(other.len())).find(|at| log.get(*at) != other.get(*at));
            let around = |log: &[String], at: usize| log.iter().skip(at.saturating_sub(3)).take(6).cloned().collect::<Vec<_>>();
            prop_assert!(
                differs.is_none(), "VIP {}: {:#?}", vip, differs.map(|at| (around(log, at), around(other, at)))
            );
        }
        prop_assert_eq!(one.state(), several.state());
    }

    #[test]
    fn limits_of_pods_are_exact_over_all_shards_and_no_app_starves(
        rounds in rounds(),
        shards in 1usize..8,
        seed in any::<u64>(),
    ) {
        let limits = Limits {
            pods: Shares { per_tenant: 3, in_all: 4 },
            ..Limits::default()
        };
        // Two apps that are recreated at once have orphans besides: they are counted when they are listed.
        let quiet: Vec<_> = rounds.iter().map(|round| {
            round.iter().copied().filter(|(step, _)| !(11..=12).contains(step)).collect()
        }).collect();
        let mut site = played(shards, limits, &quiet, seed, |site| {
            assert!(site.pods.len() <= 4, "{} pods", site.pods.len());
            for tenant in ["t0", "t1"] {
                let of_tenant = site.pods.values().filter(|pod| pod.key().namespace == tenant);
                assert!(of_tenant.count() <= 3);
            }
        });
        // All that wait get their pods in the end, and then all sleep.
        let mut order = Order(seed);
        let nodes = [0, 1].into_iter().flat_map(|node| site.step(10, node)).collect();
        site.run(nodes, &mut order);
        let wakes = (0..APPS).flat_map(|number| site.step(0, number)).collect();
        site.run(wakes, &mut order);
        let mut woken = BTreeSet::new();
        for _ in 0..400 {
            let vips: BTreeSet<u32> = site.pods.keys().map(|(vip, _)| *vip).collect();
            woken.extend(vips.iter().copied());
            let ready = vips.into_iter().flat_map(|vip| site.reports(vip, Phase::Running, usize::MAX));
            let ready: Vec<Input> = ready.collect();
            site.run(ready, &mut order);
            site.second(&mut order);
        }
        prop_assert_eq!(woken.len(), usize::from(APPS));
        prop_assert!(site.pods.is_empty());
        prop_assert!(site.planner.shards.iter().all(Apps::is_idle));
    }
}
