//! The world of the simulation: the store, controls, an activator, nodes, the network between them, and clients.

use std::collections::BTreeMap;

use dormouse_cluster::{AppSpec, Key};
use dormouse_fleet::Boottime;
use dormouse_fleet_simulation::Random;

use super::activator::Activator;
use super::calls::Calls;
use super::clients::Connection;
use super::control::{Control, Outside};
use super::machine::Machine;
use super::processes::Processes;
use super::store::Store;
use super::{APPS, NODES, TICK, Without, log};

/// What has happened, so that a run that proves nothing fails.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    /// Pods that were removed.
    pub(super) removed: usize,
    /// Removals that were refused, because another control had taken over.
    pub(super) refused_removals: usize,
    /// Awake apps of nodes whose lease was over, in stale mode.
    pub(super) stale: usize,
    /// Requests that were sent directly to pods, and through an activator.
    pub(super) direct: usize,
    pub(super) proxied: usize,
    /// Requests that an activator refused with 503.
    pub(super) late: usize,
    /// Connections to awake apps that a node refused: its lease was over, and no activator could be reached.
    pub(super) refused: usize,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.removed += other.removed;
        self.refused_removals += other.refused_removals;
        self.stale += other.stale;
        self.direct += other.direct;
        self.proxied += other.proxied;
        self.late += other.late;
        self.refused += other.refused;
    }
}

pub(super) struct World {
    pub(super) without: Without,
    pub(super) random: Random,
    pub(super) now: Boottime,
    pub(super) store: Store,
    pub(super) calls: Calls,
    pub(super) controls: Vec<Control>,
    pub(super) machines: Vec<Machine>,
    pub(super) activator: Option<Activator>,
    pub(super) processes: Processes,
    pub(super) connections: Vec<Connection>,
    /// Until when clients send requests, by VIP.
    pub(super) busy: BTreeMap<u32, Boottime>,
    /// No control runs until then.
    pub(super) control_dead_until: Boottime,
    /// No activator runs until then.
    pub(super) activator_dead_until: Boottime,
    /// The network between control and the activators is cut until then.
    pub(super) link_cut_until: Boottime,
    /// The last fault was over then.
    pub(super) calm_since: Boottime,
    /// Since when each awake app has had the same ready pod.
    pub(super) steady: BTreeMap<u32, (u32, Boottime)>,
    /// When the activator last had all routes.
    pub(super) current_at: Boottime,
    pub(super) seen: Seen,
}

pub(super) fn app_name(vip: u32) -> String {
    format!("app{vip}")
}

pub(super) fn key(vip: u32) -> Key {
    Key::new("default", app_name(vip))
}

/// Port of the VIP of every app.
pub(super) const PORT: u16 = 80;

/// The apps differ in what keeps an activator in their path.
pub(super) fn spec(vip: u32, min: u32, release: u64) -> AppSpec {
    let scale = match vip {
        1 => serde_json::json!({"target": 10, "targetBurstCapacity": 0}),
        2 => serde_json::json!({"target": 1, "targetBurstCapacity": 0}),
        3 => serde_json::json!({"containerConcurrency": 2, "targetBurstCapacity": 0}),
        _ => serde_json::json!({"target": 10, "targetBurstCapacity": 5}),
    };
    let mut spec: AppSpec = serde_json::from_value(serde_json::json!({
        "vip": format!("fd00:10::{vip:x}"),
        "port": PORT,
        "targetPort": 8000,
        "container": {"name": "app", "args": [release.to_string()]},
        "scale": scale,
    }))
    .unwrap();
    spec.scale.window = Some(dormouse_cluster::Period::seconds(1));
    spec.scale.max = Some(3);
    spec.progress_deadline_seconds = 1;
    spec.scale.min = Some(min);
    spec
}

impl World {
    pub(super) fn new(seed: u64, without: Without) -> Self {
        let mut random = Random::new(seed);
        let now = Boottime(10_000_000_000);
        let machines = (0..NODES).map(|index| {
            let mut machine = Machine::new(index, without, &mut random);
            machine.describe();
            machine
        });
        let machines = machines.collect();
        let mut store = Store::default();
        for vip in 1..=APPS {
            store.configure(now, &app_name(vip), spec(vip, 0, 0));
        }
        let mut processes = Processes::new(seed);
        processes.without_drain = without == Without::Drain;
        let control = Control::start(&mut store, now, now, without);
        Self {
            without,
            random,
            now,
            store,
            calls: Calls::new(seed, without),
            controls: vec![control],
            machines,
            activator: Some(Activator::new(now, without)),
            processes,
            connections: Vec::new(),
            busy: BTreeMap::new(),
            control_dead_until: now,
            activator_dead_until: now,
            link_cut_until: now,
            calm_since: now,
            steady: BTreeMap::new(),
            current_at: now,
            seen: Seen::default(),
        }
    }

    pub(super) fn log(&self, what: impl FnOnce() -> String) {
        log(self.now, what);
    }

    /// One step of everything but faults and changes of apps.
    pub(super) fn tick(&mut self) -> Result<(), String> {
        self.now = self.now + TICK;
        self.send_requests();
        self.step_calls();
        self.step_controls();
        self.step_activator()?;
        for index in 0..NODES {
            if self.machines[index].is_on(self.now) {
                self.deliver(index);
                self.step_agent(index);
                self.check_packets(index)?;
            }
        }
        self.end_connections();
        self.check()
    }

    pub(super) fn control(&mut self, epoch: u64) -> Option<&mut Control> {
        self.controls
            .iter_mut()
            .find(|control| control.epoch == epoch)
    }

    fn step_calls(&mut self) {
        let replies = self.calls.step(self.now, &mut self.store);
        for reply in replies {
            let position = self
                .controls
                .iter()
                .position(|control| control.epoch == reply.epoch);
            if let Some(position) = position {
                let (control, mut outside) = self.at(position);
                control.replied(reply, &mut outside);
            }
        }
        self.calls.schedule(self.now, &mut self.store);
        self.seen.refused_removals = self.calls.refused;
    }

    /// A control, and what it works with.
    fn at(&mut self, position: usize) -> (&mut Control, Outside<'_>) {
        let outside = Outside {
            now: self.now,
            store: &mut self.store,
            calls: &mut self.calls,
        };
        (&mut self.controls[position], outside)
    }

    fn step_controls(&mut self) {
        let now = self.now;
        let ended: Vec<u64> = self
            .controls
            .iter()
            .filter(|control| control.replaced)
            .map(|control| control.epoch)
            .collect();
        for epoch in ended {
            self.end_control(epoch);
        }
        if self.controls.is_empty() && self.control_dead_until <= now {
            self.start_control();
        }
        for position in 0..self.controls.len() {
            let (control, mut outside) = self.at(position);
            control.step(&mut outside);
        }
    }

    pub(super) fn start_control(&mut self) {
        let slow = self.random.once_in(2);
        let list = self.random.period(if slow { 600 } else { 50 });
        let listed_at = self.now + list;
        let control = Control::start(&mut self.store, self.now, listed_at, self.without);
        self.log(|| format!("control {} starts", control.epoch));
        self.controls.push(control);
    }

    /// A control ends, and its streams with it.
    pub(super) fn end_control(&mut self, epoch: u64) {
        self.log(|| format!("control {epoch} ends"));
        self.look();
        self.controls.retain(|control| control.epoch != epoch);
        self.calls.killed(epoch);
        for index in 0..NODES {
            if self.machines[index]
                .node
                .session
                .is_some_and(|(of, _)| of == epoch)
            {
                self.lose_stream(index);
            }
        }
        if let Some(activator) = &mut self.activator
            && activator.session.is_some_and(|(of, _)| of == epoch)
        {
            activator.close();
        }
    }
}
