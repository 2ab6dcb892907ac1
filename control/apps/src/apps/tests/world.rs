//! A model of one app's environment: a store, a node and the fleet's acknowledgements, as maps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dormouse_activator::link::Load;
use dormouse_activator::{Fault, Unanswered};
use dormouse_cluster::app::RolloutStatus;
use dormouse_cluster::{
    App, AppSpec, AppStatus, Change, Object, Revision, StoredApp, TrafficStatus, history,
};

use dormouse_fleet::proto::{self, PodStatus, Stages, pod_status::Phase};
use dormouse_fleet::root::Event as FleetEvent;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::action::{Entry, Route, Status};
use crate::actuator::convert::{app_status, has_same_split};
use crate::event::{AppRead, RevisionRead};

/// The app's VIP index.
pub(super) const VIP: u32 = 1;

pub(super) struct World {
    pub(super) apps: Planner,
    pub(super) now: Boottime,
    pub(super) revision: u64,
    pub(super) app: Option<App>,
    pub(super) pods: BTreeMap<Key, Pod>,
    /// The revisions in the store.
    pub(super) revisions: BTreeMap<Key, Revision>,
    todo: VecDeque<Action>,
    pub(super) entries: Vec<(u64, Entry)>,
    settled: u64,
    pub(super) gone: bool,
    /// The route in the activators.
    pub(super) route: Option<Route>,
    pub(super) ports: BTreeSet<u16>,
    pub(super) stopped: Vec<String>,
    pub(super) delay_settling: bool,
    /// The next so many creations succeed, and their responses are lost.
    pub(super) responses_lost: u16,
    /// The response to a write of a status arrives before the controller sees the write.
    pub(super) responses_first: bool,
    /// Writes of the status that the controller has seen in the store.
    pub(super) own_writes_seen: u32,
    addresses: u16,
    /// The reasons and messages of events.
    pub(super) events: Vec<(String, String)>,
    /// Reads of the app from the store.
    pub(super) reads: u32,
}

impl World {
    pub(super) fn new(spec: &serde_json::Value) -> Self {
        let spec: AppSpec = serde_json::from_value(spec.clone()).unwrap();
        let mut app = App::new("web", spec);
        app.metadata.namespace = Some("default".into());
        app.metadata.uid = Some("app-uid".into());
        let now = Boottime(1_000_000_000_000);
        let mut world = Self {
            apps: Planner::new(config(), 1, 1),
            now,
            revision: 1,
            app: Some(app),
            pods: BTreeMap::new(),
            revisions: BTreeMap::new(),
            todo: VecDeque::new(),
            entries: Vec::new(),
            settled: 0,
            gone: false,
            route: None,
            ports: BTreeSet::new(),
            stopped: Vec::new(),
            delay_settling: false,
            responses_lost: 0,
            responses_first: false,
            own_writes_seen: 0,
            addresses: 0,
            events: Vec::new(),
            reads: 0,
        };
        world.event(Input::Changes(vec![
            (1, Change::Listing),
            (1, Change::Listed),
        ]));
        world.app_changed();
        world
    }

    /// The published status of the app, which does not sleep.
    pub(super) fn status(&self) -> Status {
        self.apps.records[&VIP].published.status.clone().unwrap()
    }

    /// Whether clients of the activators are asked to reconnect.
    pub(super) fn serving(&self) -> bool {
        self.route.as_ref().is_some_and(|route| route.serving)
    }

    /// An activator asks for the route of a VIP; returns the answer.
    pub(super) fn want(&mut self, vip: u32, port: u16) -> Option<Route> {
        let at = self.now;
        let mut actions = VecDeque::from(self.apply(Event::Want { vip, port, at }));
        let is_route = |action: &Action| matches!(action, Action::Route { .. });
        let position = actions.iter().position(is_route);
        let answer = actions.remove(position.expect("no answer"));
        self.todo.extend(actions);
        match answer {
            Some(Action::Route { route, .. }) => route,
            other => panic!("no answer, but {other:?}"),
        }
    }

    /// The app has only a compact record, and its stored status is that of a sleeping app.
    pub(super) fn is_asleep(&self) -> bool {
        let compact = self.apps.sleep.get(VIP).is_some() && self.apps.records.is_empty();
        compact && self.app.as_ref().is_some_and(|app| stored(app).asleep)
    }

    pub(super) fn entry(&self) -> Entry {
        self.entries.last().unwrap().1.clone()
    }

    /// Sends an event to the controller and checks its invariants.
    pub(super) fn event(&mut self, event: impl Into<Input>) {
        let before = self
            .apps
            .records
            .get(&VIP)
            .map(|record| record.members.clone());
        let actions = self.apply(event);
        self.todo.extend(actions);
        if let Some(record) = self.apps.records.get(&VIP) {
            let checked = record.check_successors(&before.unwrap_or_default());
            checked.unwrap();
            let uid = record.app.as_ref().map(|app| app.metadata.uid.as_deref());
            let mut live = record.members.values().filter(|member| member.is_live());
            let is_own = |member: &Member| uid.is_none_or(|uid| member.is_owned(uid));
            assert!(live.all(is_own), "a pod of another app is live");
        }
        self.check();
    }

    fn apply(&mut self, event: impl Into<Input>) -> Vec<Action> {
        self.apps.apply(self.now, event)
    }

    fn check(&mut self) {
        let Some(record) = self.apps.records.get(&VIP) else {
            return;
        };
        let max = usize::try_from(record.settings.max_scale).unwrap();
        let surge = if record.is_rolled_out() {
            0
        } else {
            max.div_ceil(4)
        };
        assert!(
            max == 0 || record.live() <= max + surge,
            "{} live pods, the limit is {max}",
            record.live()
        );
        let mut again = Turn::new(self.now);
        self.apps.plan(VIP, &mut again);
        assert_eq!(again.actions, [], "a second plan has actions");
    }

    /// Executes all actions, and those that their events cause.
    pub(super) fn execute_all(&mut self) {
        let mut delayed = VecDeque::new();
        while let Some(action) = self.todo.pop_front() {
            if self.delay_settling && matches!(action, Action::Settle { .. }) {
                delayed.push_back(action);
            } else {
                self.execute(action);
            }
        }
        self.todo = delayed;
    }

    fn execute(&mut self, action: Action) {
        self.now = Boottime(self.now.0 + 1_000_000);
        match action {
            Action::Read { vip, .. } => self.read(vip),
            Action::ReadRevision { vip, revision } => {
                let read = match self.revisions.get(&revision) {
                    Some(found) => RevisionRead::Found(Box::new(found.clone())),
                    None => RevisionRead::Absent,
                };
                self.event(Event::RevisionRead { vip, read });
            }
            Action::Create { vip, pod } => self.create(vip, *pod),
            Action::Publish {
                vip,
                app,
                status,
                entry,
            } => self.publish(vip, &app, &status, entry),
            // The fleet ignores what is not newer.
            Action::Announce { version, entry, .. } => {
                if self.entries.last().is_none_or(|(last, _)| *last < version) {
                    self.entries.push((version, entry));
                }
            }
            Action::Withdraw { version, .. } => {
                let nowhere = Entry {
                    backends: Vec::new(),
                    ..self.entry()
                };
                self.entries.push((version, nowhere));
                self.gone = true;
            }
            Action::Settle { vip, version } => {
                self.settled = self.settled.max(version);
                self.event(Event::Settled { vip, version });
            }
            Action::Delete { vip, pod } => self.delete(vip, pod),
            Action::Route { route, .. } => self.route = route,
            Action::Listen { ports } => self.ports = ports,
            Action::Run { spec, .. } if spec.stop => self.stopped.push(spec.name),
            Action::PodStatus { pod, status, .. } => {
                let pod = pod.key();
                if let Some(object) = self.pods.get_mut(&pod) {
                    pod::write_status(object, &status, Timestamp::UNIX_EPOCH);
                    self.pod_changed(&pod);
                }
                self.event(Input::StatusWritten { pod });
            }
            Action::Run { .. }
            | Action::SyncPods { .. }
            | Action::NodeUp { .. }
            | Action::NodeDown { .. }
            | Action::Absent { .. } => {}
            Action::RecordEvent {
                reason, message, ..
            } => self.events.push((reason.into_owned(), message)),
        }
    }

    fn read(&mut self, vip: u32) {
        self.reads += 1;
        let read = match self.app.clone() {
            Some(app) => AppRead::Found(Arc::new(app)),
            None => AppRead::Absent,
        };
        self.event(Event::AppRead { vip, read });
    }

    fn create(&mut self, vip: u32, mut pod: Pod) {
        pod.spec.as_mut().unwrap().node_name = Some("n1".into());
        let key = pod.key();
        self.event(Event::Placed {
            vip,
            pod: key.clone(),
            node: Some("n1".into()),
            at: self.now,
        });
        self.pods.insert(key.clone(), pod);
        self.pod_changed(&key);
        let written = self.responses_lost == 0;
        self.responses_lost = self.responses_lost.saturating_sub(1);
        self.event(Event::Created {
            vip,
            pod: key,
            written,
        });
    }

    fn publish(&mut self, vip: u32, known: &App, status: &Status, entry: Option<Entry>) {
        let Some(app) = &mut self.app else {
            return self.event(Event::Published { vip, app: None });
        };
        let is_current = has_same_split(known, app);
        app.status = Some(AppStatus {
            last_wake: None,
            reason: None,
            ..app_status(app, status)
        });
        self.revision += 1;
        app.metadata.resource_version = Some(self.revision.to_string());
        let is_own = app.is_configured_as(known) && app.metadata.uid == known.metadata.uid;
        let seen = if is_own && is_current {
            brief(app)
        } else {
            stored(app)
        };
        self.own_writes_seen += u32::from(is_own);
        let seen = Change::App(app.key(), Some(Box::new(seen)));
        let seen = Input::Changes(vec![(self.revision, seen)]);
        let app = is_current.then(|| Arc::new(app.clone()));
        let response = Event::Published { vip, app }.into();
        let entry = entry.filter(|_| is_current);
        self.entries
            .extend(entry.map(|entry| (self.revision, entry)));
        let inputs = if self.responses_first {
            [response, seen]
        } else {
            [seen, response]
        };
        for input in inputs {
            self.event(input);
        }
    }

    /// A node may use any version from the last settled one on.
    fn delete(&mut self, vip: u32, pod: Key) {
        if let Some(object) = self.pods.get(&pod) {
            let address = object
                .status
                .as_ref()
                .and_then(|status| status.pod_ip.clone());
            let address: Option<std::net::Ipv6Addr> =
                address.and_then(|address| address.parse().ok());
            let base = self
                .entries
                .iter()
                .rposition(|(version, _)| *version <= self.settled)
                .unwrap_or(0);
            for (version, entry) in &self.entries[base..] {
                let listed = entry
                    .backends
                    .iter()
                    .any(|backend| Some(backend.address()) == address);
                assert!(
                    !listed,
                    "{pod} is removed while version {version} may be in use (settled: {})",
                    self.settled
                );
            }
        }
        self.remove(&pod);
        self.event(Event::Deleted {
            vip,
            pod,
            gone: true,
        });
    }

    pub(super) fn remove(&mut self, pod: &Key) {
        self.pods.remove(pod);
        self.pod_changed(pod);
    }

    fn pod_changed(&mut self, key: &Key) {
        self.revision += 1;
        let pod = self.pods.get(key).cloned().map(Arc::new);
        self.event(Input::Changes(vec![(
            self.revision,
            Change::Pod(key.clone(), pod),
        )]));
    }

    fn app_changed(&mut self) {
        self.revision += 1;
        if let Some(app) = &mut self.app {
            app.metadata.resource_version = Some(self.revision.to_string());
        }
        let app = self.app.as_ref().map(stored).map(Box::new);
        self.event(Input::Changes(vec![(
            self.revision,
            Change::App(Key::new("default", "web"), app),
        )]));
    }

    pub(super) fn edit(&mut self, edit: impl FnOnce(&mut AppSpec)) {
        edit(&mut self.app.as_mut().unwrap().spec);
        self.app_changed();
    }

    /// The app gets this annotation of the autoscaler.
    pub(super) fn annotate(&mut self, name: &str, value: &str) {
        let annotations = &mut self.app.as_mut().unwrap().metadata.annotations;
        let name = format!("autoscaling.knative.dev/{name}");
        annotations
            .get_or_insert_default()
            .insert(name, value.to_owned());
        self.app_changed();
    }

    /// This traffic split comes into force.
    pub(super) fn traffic(&mut self, traffic: Vec<TrafficStatus>) {
        let app = self.app.as_mut().unwrap();
        app.status.get_or_insert_default().traffic = traffic;
        self.app_changed();
    }

    /// As [`World::traffic`], before the controller sees it.
    pub(super) fn traffic_unseen(&mut self, traffic: Vec<TrafficStatus>) {
        self.revision += 1;
        let app = self.app.as_mut().unwrap();
        app.metadata.resource_version = Some(self.revision.to_string());
        app.status.get_or_insert_default().traffic = traffic;
    }

    /// This is the state of the app's gradual rollout.
    pub(super) fn rollout(&mut self, rollout: RolloutStatus) {
        let app = self.app.as_mut().unwrap();
        app.status.get_or_insert_default().rollout = Some(rollout);
        self.app_changed();
    }

    /// The app's share of the traffic needs so many pods for now.
    pub(super) fn floor(&mut self, pods: u32) {
        let app = self.app.as_mut().unwrap();
        app.status.get_or_insert_default().pods_min = pods;
        self.app_changed();
    }

    /// As [`World::floor`], of an app whose traffic is served in this mode now.
    pub(super) fn floor_in(&mut self, mode: Mode, pods: u32) {
        self.app
            .as_mut()
            .unwrap()
            .status
            .get_or_insert_default()
            .mode = mode;
        self.floor(pods);
    }

    /// The split in force accounts for this revision of the app's template.
    pub(super) fn split_for(&mut self, revision: u32) {
        let app = self.app.as_mut().unwrap();
        app.status.get_or_insert_default().split_revision = Some(revision);
        self.app_changed();
    }

    /// The entry that a node gets which asks for it.
    pub(super) fn wanted_entry(&mut self) -> Entry {
        let answers = self.wanted(VIP);
        let announced = answers.into_iter().find_map(|action| match action {
            Action::Announce { entry, .. } => Some(entry),
            _ => None,
        });
        announced.unwrap_or_else(|| self.entry())
    }

    /// The app gets the template of this release, whose revision has the number after it; that of [`World::new`] is revision 1.
    pub(super) fn release(&mut self, number: u16) {
        let image = Some(format!("web:{number}"));
        let app = self.app.as_mut().unwrap();
        if app.spec.container.image != image {
            let status = app.status.get_or_insert_default();
            let before = status.revision.replace(u32::from(number) + 1);
            status.conditions.clear();
            let revision = history::revision(app, before.unwrap_or(1));
            self.revisions.insert(revision.key(), revision);
        }
        self.edit(|spec| spec.container.image = image);
    }

    /// Another control has created a pod of the app.
    pub(super) fn pod_of_another_control(&mut self) {
        let pod = self.new_pod();
        self.pod_appears(pod);
    }

    /// A pod as another control creates it.
    pub(super) fn new_pod(&self) -> Pod {
        let app = self.app.as_ref().unwrap();
        let mut pod = pod::of(app, VIP, pod::template(app), &pod::Names::new(9));
        pod.spec.as_mut().unwrap().node_name = Some("n1".into());
        pod
    }

    pub(super) fn pod_appears(&mut self, pod: Pod) {
        let key = pod.key();
        self.pods.insert(key.clone(), pod);
        self.pod_changed(&key);
    }

    /// The reads of the app end.
    pub(super) fn answer_read(&mut self) {
        let is_read = |action: &Action| matches!(action, Action::Read { .. });
        while let Some(position) = self.todo.iter().position(is_read) {
            self.todo.remove(position);
            self.read(VIP);
        }
    }

    /// The next read of the app fails.
    pub(super) fn fail_read(&mut self) {
        self.todo
            .retain(|action| !matches!(action, Action::Read { .. }));
        let read = AppRead::Failed;
        self.event(Event::AppRead { vip: VIP, read });
    }

    /// Whether a write of the app's status is in progress.
    pub(super) fn is_writing(&self) -> bool {
        self.todo
            .iter()
            .any(|action| matches!(action, Action::Publish { .. }))
    }

    /// The writes of the app's status that are in progress fail.
    pub(super) fn fail_write(&mut self) {
        self.todo
            .retain(|action| !matches!(action, Action::Publish { .. }));
        self.event(Event::Published {
            vip: VIP,
            app: None,
        });
    }

    /// The app is deleted while the controller does not watch the store.
    pub(super) fn forget_app(&mut self) {
        self.app = None;
        self.revision += 1;
    }

    pub(super) fn delete_app(&mut self) {
        self.app = None;
        self.app_changed();
    }

    pub(super) fn restart(&mut self) {
        // Its pods have other names than those of the one before.
        self.apps = Planner::new(config(), 1, self.revision);
        self.todo.clear();
        self.listed();
    }

    /// The controller gets a list of the cluster.
    pub(super) fn listed(&mut self) {
        let apps = self.app.as_ref().map(|app| {
            let key = Key::new("default", "web");
            Change::App(key, Some(Box::new(stored(app))))
        });
        let pods = self.pods.iter().map(|(key, pod)| {
            let pod = Arc::new(pod.clone());
            Change::Pod(key.clone(), Some(pod))
        });
        let objects = apps.into_iter().chain(pods);
        let all = [Change::Listing]
            .into_iter()
            .chain(objects)
            .chain([Change::Listed]);
        let batch = all.map(|change| (self.revision, change)).collect();
        self.event(Input::Changes(batch));
    }

    pub(super) fn demand(&mut self) {
        self.event(Event::Demand {
            vip: VIP,
            at: self.now,
        });
    }

    pub(super) fn woke(&mut self) {
        self.woke_by(80, 6);
    }

    /// A node reports the first packet, to this port and protocol.
    pub(super) fn woke_by(&mut self, port: u32, protocol: u32) {
        self.event(Input::Fleet(FleetEvent::Woke {
            node: "n1".into(),
            vip: VIP,
            at: self.now,
            port,
            protocol,
        }));
    }

    /// A node follows a VIP that the fleet has no entry of; returns the new actions.
    pub(super) fn wanted(&mut self, vip: u32) -> Vec<Action> {
        let before = self.todo.len();
        self.event(Input::Fleet(FleetEvent::Wanted { vips: vec![vip] }));
        self.todo.iter().skip(before).cloned().collect()
    }

    /// One second with this concurrency in the activator; returns the number of actions.
    pub(super) fn tick(&mut self, concurrency: f64) -> usize {
        self.now = Boottime(self.now.0 + 1_000_000_000);
        let before = self.todo.len();
        if concurrency > 0.0 {
            let load = Load {
                vip: VIP,
                concurrency,
                requests: concurrency,
            };
            let actions = self.apply(Input::Load(vec![load]));
            self.todo.extend(actions);
        }
        let own = slice_of(VIP);
        let others = (0..SLICES).filter(|slice| *slice != own);
        for slice in others.chain([own]) {
            let actions = self.apps.slice(self.now, slice);
            self.todo.extend(actions);
        }
        self.check();
        self.todo.len() - before
    }

    /// One second with this many connections to pods.
    pub(super) fn connections(&mut self, concurrency: f64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small and positive"
        )]
        let connection_ns = (concurrency * 1e9) as u64;
        let count = proto::Count {
            vip: VIP,
            interval_ns: 1_000_000_000,
            connections: 1,
            connection_ns,
            open: 1,
        };
        self.event(Input::Fleet(FleetEvent::Counts {
            node: "n1".into(),
            counts: vec![count],
        }));
    }

    fn reported(&mut self, key: &Key, phase: Phase, reason: &str) {
        let pod = &self.pods[key];
        let known = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        self.addresses += 1;
        let mut status = PodStatus {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: pod.metadata.uid.clone().unwrap(),
            address: known.unwrap_or_else(|| format!("2001:db8::{:x}", self.addresses)),
            ready: phase == Phase::Running,
            reason: reason.to_owned(),
            ..Default::default()
        };
        status.set_phase(phase);
        let at = |step: u64| self.now.0 + step;
        status.stages = Some(Stages {
            received_ns: at(0),
            cni_begin_ns: at(1),
            cni_end_ns: at(2),
            started_ns: at(3),
            ready_ns: at(4),
        });
        self.event(Input::Fleet(FleetEvent::Pod {
            node: "n1".into(),
            status,
        }));
    }

    /// Executes all actions, and those of pods that become ready.
    pub(super) fn execute_until_ready(&mut self) {
        self.execute_all();
        self.ready_all();
        self.execute_all();
    }

    pub(super) fn ready_all(&mut self) {
        self.ready_some(|_| true);
    }

    /// These pods are ready.
    pub(super) fn ready_some(&mut self, is_one: impl Fn(&Key) -> bool) {
        for key in self.pods.keys().cloned().collect::<Vec<_>>() {
            let seen = pod::observe(&self.pods[&key]);
            if is_one(&key) && seen.ready.is_none() && seen.ended.is_none() {
                self.reported(&key, Phase::Running, "");
            }
        }
        self.execute_all();
    }

    pub(super) fn fail_one(&mut self, reason: &str) -> Key {
        let key = self.pods.keys().next().unwrap().clone();
        self.fail(&key, reason);
        key
    }

    pub(super) fn fail(&mut self, key: &Key, reason: &str) {
        self.reported(key, Phase::Failed, reason);
    }

    /// The pods run, and are not ready for this reason.
    pub(super) fn unready_all(&mut self, reason: &str, message: &str) {
        self.unready_some(|_| true, reason, message);
    }

    /// These pods run, and are not ready for this reason.
    pub(super) fn unready_some(
        &mut self,
        is_one: impl Fn(&Key) -> bool,
        reason: &str,
        message: &str,
    ) {
        let pods = self.pods.clone().into_iter();
        for (key, pod) in pods.filter(|(key, _)| is_one(key)) {
            let mut status = PodStatus {
                namespace: key.namespace,
                name: key.name,
                uid: pod.metadata.uid.unwrap(),
                reason: reason.to_owned(),
                message: message.to_owned(),
                ..Default::default()
            };
            status.set_phase(Phase::Running);
            let node = "n1".into();
            self.event(Input::Fleet(FleetEvent::Pod { node, status }));
        }
        self.execute_all();
    }

    /// The last request has ended without a response.
    pub(super) fn unanswered(&mut self, how: Unanswered) {
        let (vip, at) = (VIP, self.now);
        self.event(Event::Unanswered { vip, at, how });
    }

    /// A ready pod has failed a request, or has answered one.
    pub(super) fn answer(&mut self, pod: &str, fault: Option<Fault>) {
        let (vip, at) = (VIP, self.now);
        self.event(Event::Answer {
            vip,
            pod: pod.parse().unwrap(),
            at,
            fault,
        });
        self.execute_all();
    }

    pub(super) fn node_down(&mut self) {
        self.event(Input::Fleet(FleetEvent::NodeDown { node: "n1".into() }));
    }

    pub(super) fn node_listed(&mut self) {
        self.revision += 1;
        let node = Change::Node(Key::cluster_scoped("n1"), Some(Arc::default()));
        self.event(Input::Changes(vec![(self.revision, node)]));
    }

    pub(super) fn node_up(&mut self) {
        self.event(Input::Fleet(FleetEvent::NodeUp {
            node: "n1".into(),
            status: proto::NodeStatus::default(),
            boot_id: String::new(),
        }));
    }

    /// The app is deleted and recreated; the controller gets both changes in one batch.
    pub(super) fn replace_app(&mut self) {
        let (key, mut app) = (Key::new("default", "web"), self.app.take().unwrap());
        self.revision += 2;
        app.metadata.uid = Some("another-uid".into());
        app.metadata.resource_version = Some(self.revision.to_string());
        app.status = None;
        self.app = Some(app.clone());
        self.event(Input::Changes(vec![
            (self.revision - 1, Change::App(key.clone(), None)),
            (
                self.revision,
                Change::App(key, Some(Box::new(stored(&app)))),
            ),
        ]));
    }

    /// One step of a random sequence.
    pub(super) fn step(&mut self, step: u8, number: u16) {
        let position = usize::from(number);
        match step {
            0..=3 if !self.todo.is_empty() => {
                let action = self.todo.remove(position % self.todo.len()).unwrap();
                self.execute(action);
            }
            0 | 4 => drop(self.tick(f64::from(number % 40))),
            1 | 5 => self.connections(f64::from(number % 60)),
            2 | 6 => self.demand(),
            3 | 7 => self.woke(),
            8 => drop(self.tick(0.0)),
            9 | 10 if !self.pods.is_empty() => {
                let key = self
                    .pods
                    .keys()
                    .nth(position % self.pods.len())
                    .unwrap()
                    .clone();
                let phase = if step == 9 || number.is_multiple_of(3) {
                    Phase::Running
                } else {
                    Phase::Failed
                };
                self.reported(&key, phase, "Error");
            }
            11 => self.node_down(),
            12 => self.execute_all(),
            13 if number.is_multiple_of(5) => self.edit(|spec| spec.paused = !spec.paused),
            13 => self.release(number % 3 + 1),
            _ => {
                for _ in 0..number % 8 {
                    self.tick(0.0);
                }
            }
        }
    }
}

/// An app as the store has it.
pub(super) fn stored(app: &App) -> StoredApp {
    let revision = app.revision();
    StoredApp::decode(serde_json::to_vec(app).unwrap(), revision).unwrap()
}

/// The fields of an app in the store that are decoded at once, without the others.
fn brief(app: &App) -> StoredApp {
    let mut brief = serde_json::to_value(app).unwrap();
    let spec = brief["spec"].as_object_mut().unwrap();
    spec.remove("container");
    let brief = serde_json::to_vec(&brief).unwrap();
    StoredApp::decode(brief, app.revision()).unwrap()
}

pub(super) fn config() -> Config {
    Config {
        ranges: vec!["fd00:10::/108".parse().unwrap()],
        scale_to_zero_grace: Duration::from_secs(1),
        tick: Duration::from_secs(2),
        epoch: 1,
        node_lease: Duration::from_secs(30),
        limits: Limits::default(),
    }
}
