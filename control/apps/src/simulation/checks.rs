//! What must be true in each step, and when nothing happens any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_cluster::{App, Key, State};
use k8s_openapi::api::core::v1::Pod;

use super::activator::{Refusal, Request};
use super::control::Control;
use super::machine::Decision;
use super::processes::End;
use super::world::{PORT, World, key};
use super::{APPS, TICK, Without};
use crate::member::Member;
use crate::nodes;
use crate::pod::{self, observe};

/// Time after the last fault in which everything is back in order.
const RECOVERY: Duration = Duration::from_secs(6);
/// Time in which a change reaches activators and nodes.
const DELIVERY: Duration = Duration::from_secs(2);
/// Time between two looks at all pods.
const LOOK_MS: u64 = 200;

/// The number of a pod's process, if the pod is ready.
fn ready(pod: &Pod) -> Option<u32> {
    let address = observe(pod).ready?.segments();
    Some((u32::from(address[6]) << 16) | u32::from(address[7]))
}

impl World {
    /// Every node opens a connection by each entry that its programs may use now.
    pub(super) fn check_packets(&mut self, index: usize) -> Result<(), String> {
        let (machine, processes) = (&self.machines[index], &self.processes);
        let kernel = &machine.kernel;
        let leased = machine.node.is_leased(self.now) || self.is_without(Without::KernelCheck);
        let awake = kernel.words.values();
        let awake = awake.filter(|word| word.backends.iter().any(|pod| processes.runs(*pod)));
        let awake = awake.count();
        if !leased && !machine.node.is_stale {
            let reaches = self.reaches_activator(index);
            self.seen.refused += if reaches { 0 } else { awake };
            return Ok(());
        }
        if !leased {
            self.seen.stale += awake;
            if machine.node.is_alone(TICK) {
                return Ok(());
            }
        }
        let fades = self.now < kernel.fading_until;
        let fading = kernel.fading.iter().filter(|_| fades);
        let words = kernel.words.iter().map(|(vip, word)| (vip, &word.backends));
        for (vip, pods) in words.chain(fading) {
            if let Some(number) = pods.iter().find(|pod| processes.is_removed(**pod)) {
                return Err(format!(
                    "n{index} sent to removed pod {number} of VIP {vip}"
                ));
            }
            let other = |pod: &&u32| processes.all[pod].vip != *vip;
            if let Some(number) = pods.iter().find(other) {
                return Err(format!(
                    "n{index} sent to pod {number} of another VIP than {vip}"
                ));
            }
        }
        Ok(())
    }

    /// Everything that is true in each step, besides packets.
    pub(super) fn check(&mut self) -> Result<(), String> {
        if let Some(violation) = self
            .controls
            .iter()
            .find_map(|control| control.violation.clone())
        {
            return Err(violation);
        }
        if self.processes.cut > 0 {
            return Err("a pod with open connections was stopped".to_owned());
        }
        let waited = |control: &Control| control.fleet.waited_at == self.now;
        if self.is_calm() && self.controls.iter().any(waited) {
            return Err("a change that all nodes have acknowledged waited for a lease".to_owned());
        }
        for spec in self.processes.stopped.drain(..) {
            let pod = self.store.pods.get(&Key::new(spec.namespace, spec.name));
            if pod.is_some_and(|pod| pod.metadata.uid.as_ref() == Some(&spec.uid)) {
                return Err(format!("pod {} was stopped and not deleted", spec.uid));
            }
        }
        let step = self.now.0 / 1_000_000;
        if step.is_multiple_of(LOOK_MS) {
            self.look();
            self.check_steady()?;
        }
        Ok(())
    }

    /// Notes since when each awake app has had the same ready pod.
    pub(super) fn look(&mut self) {
        let mut controls = self.controls.iter().rev();
        let Some(control) = controls.find(|one| one.dispatch.is_listed()) else {
            return;
        };
        let mut steady = BTreeMap::new();
        for record in control.records() {
            let stays = |key: &&Key| {
                let others = self.controls.iter();
                let mut others = others.filter_map(|one| one.record(record.vip));
                others.all(|one| one.members.get(*key).is_some_and(Member::is_live))
            };
            let stored = |key: &Key| self.store.pods.get(key).and_then(|pod| ready(pod));
            let mut numbers = record.members.keys().filter(stays).filter_map(stored);
            let number = numbers.find(|number| self.processes.runs(*number));
            if let (Some(number), Some(_)) = (number, &record.app) {
                let before = self.steady.get(&record.vip);
                let since = before.filter(|(known, _)| *known == number);
                let since = since.map_or(self.now, |(_, since)| *since);
                steady.insert(record.vip, (number, since));
            }
        }
        self.steady = steady;
    }

    /// An awake app is served wherever an activator is ready.
    fn check_steady(&self) -> Result<(), String> {
        let Some(activator) = &self.activator else {
            return Ok(());
        };
        for (vip, (number, since)) in &self.steady {
            if *since + DELIVERY > self.current_at || !self.processes.runs(*number) {
                continue;
            }
            for (index, machine) in self.machines.iter().enumerate() {
                let usable = machine.uses_entries(self.now);
                let proxied = matches!(machine.kernel.decide(*vip, usable), Decision::Activator);
                let reaches = machine.is_on(self.now) && self.reaches_activator(index);
                if proxied && reaches && !activator.has_backend(*vip) {
                    return Err(format!(
                        "VIP {vip} is awake, and the activator has no pod of it"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A request was refused, although there was time enough to answer it. One to no app, or to another port than the app's,
    /// is answered with a refusal.
    pub(super) fn check_refused(&self, request: &Request, refusal: Refusal) -> Result<(), String> {
        let vip = request.vip;
        let calm = self.is_calm();
        let serves = self.store.apps.contains_key(&key(vip)) && request.port == PORT;
        if calm && (serves || refusal == Refusal::Late) && !self.backs_off(vip) {
            return Err(format!("a request for VIP {vip} was refused: {refusal:?}"));
        }
        Ok(())
    }

    /// Nothing is disturbed any more.
    fn is_calm(&self) -> bool {
        self.now.since(self.calm_since) > RECOVERY
    }

    /// The activator dialled a pod that was removed.
    pub(super) fn check_dialled(&self, number: u32) -> Result<(), String> {
        let newest = self.activator.as_ref().and_then(|one| one.session);
        let newest = newest.is_some_and(|(epoch, _)| epoch == self.store.epoch);
        let process = &self.processes.all[&number];
        let known = self.now.since(process.ended_at) > DELIVERY;
        if newest && self.current_at == self.now && known {
            return Err(format!("the activator sent to removed pod {number}"));
        }
        Ok(())
    }

    /// Pods of the app have failed, and the next one waits.
    fn backs_off(&self, vip: u32) -> bool {
        let records = self.controls.iter();
        let mut records = records.filter_map(|control| control.record(vip));
        records.any(|record| record.backoff.failures() > 1)
    }

    /// Nothing happens any more: store, nodes and activator agree, and nothing is left over.
    pub(super) fn check_quiet(&self) -> Result<(), String> {
        let mut expected = BTreeMap::new();
        for vip in 1..=APPS {
            let pods = self.check_app(vip)?;
            if !pods.is_empty() {
                expected.insert(vip, pods);
            }
        }
        self.check_nodes(&expected)?;
        let activator = self.activator.as_ref().ok_or("there is no activator")?;
        if activator.has_requests() || !self.calls.is_idle() {
            return Err("a request or a call is left over".to_owned());
        }
        let routes = activator.backends();
        if routes != expected {
            return Err(format!(
                "the activator routes {routes:?}, expected {expected:?}"
            ));
        }
        Ok(())
    }

    /// The ready pods of an app.
    fn check_app(&self, vip: u32) -> Result<BTreeSet<u32>, String> {
        let of_app =
            |pod: &&std::sync::Arc<Pod>| pod::owner_of(pod).is_some_and(|(_, owner)| owner == vip);
        let pods: Vec<_> = self.store.pods.values().filter(of_app).collect();
        let numbers: BTreeSet<u32> = pods.iter().filter_map(|pod| ready(pod)).collect();
        let Some(app) = self.store.apps.get(&key(vip)) else {
            let found = pods.len();
            return match found {
                0 => Ok(numbers),
                _ => Err(format!("VIP {vip} is deleted and has {found} pods")),
            };
        };
        let (want, status) = (
            app.spec.scale.min.unwrap_or(0),
            app.status.clone().unwrap_or_default(),
        );
        let state = if want == 0 {
            State::Asleep
        } else {
            State::Awake
        };
        if self.backs_off(vip) {
            return Ok(numbers);
        }
        let found = (
            pods.len(),
            numbers.len(),
            status.ready as usize,
            status.wanted,
        );
        let all = want as usize;
        if found != (all, all, all, want) || status.state != state {
            return Err(format!(
                "VIP {vip}: pods, ready ones, ready and wanted by its status are {found:?}, its state {}, expected {want} {state}",
                status.state
            ));
        }
        Ok(numbers)
    }

    fn check_nodes(&self, expected: &BTreeMap<u32, BTreeSet<u32>>) -> Result<(), String> {
        for (index, machine) in self.machines.iter().enumerate() {
            if !machine.node.is_leased(self.now) || machine.node.is_stale {
                return Err(format!("n{index} has no lease"));
            }
            let node = self.store.nodes.get(&Key::cluster_scoped(&machine.name));
            if !node.is_some_and(nodes::is_ready) {
                return Err(format!("n{index} is connected and not ready in the store"));
            }
            let bound = self.store.pods.values().filter(|pod| {
                let spec = pod.spec.as_ref();
                spec.and_then(|spec| spec.node_name.as_ref()) == Some(&machine.name)
            });
            let bound: BTreeSet<&String> =
                bound.filter_map(|pod| pod.metadata.uid.as_ref()).collect();
            let run: BTreeSet<&String> = machine.runtime.uids().collect();
            if bound != run {
                return Err(format!("n{index} runs {run:?}, the store has {bound:?}"));
            }
            for (vip, word) in &machine.kernel.words {
                let pods = expected.get(vip).cloned().unwrap_or_default();
                if word.serves && word.backends != pods {
                    let entry = &word.backends;
                    return Err(format!(
                        "n{index}: entry {entry:?} of VIP {vip}, expected {pods:?}"
                    ));
                }
            }
        }
        let numbers: BTreeSet<u32> = expected.values().flatten().copied().collect();
        let all = self.processes.all.iter();
        let mut left =
            all.filter(|(number, process)| process.end.is_none() && !numbers.contains(number));
        match left.next() {
            Some((number, process)) => Err(format!(
                "pod {number} of VIP {} runs on n{} and is in no route",
                process.vip, process.node
            )),
            None => Ok(()),
        }
    }

    /// One request for a sleeping app starts one pod, which answers it.
    pub(super) fn check_wake(&mut self) -> Result<(), String> {
        let asleep = |vip: &u32| {
            // The second app's target is one request for more than one pod.
            let app = self.store.apps.get(&key(*vip));
            // One whose template was never ready wakes with the one before, too.
            let is_ready = |app: &App| {
                let status = app.status.as_ref();
                let ready = status.and_then(|status| status.ready_revision);
                ready.is_none_or(|ready| ready == app.revision_number())
            };
            app.is_some_and(|app| app.spec.scale.min.unwrap_or(0) == 0 && is_ready(app))
                && *vip != 2
                && !self.backs_off(*vip)
        };
        let Some(vip) = (1..=APPS).find(asleep) else {
            return Ok(());
        };
        let (creates, answered) = (self.created(vip), self.seen.proxied);
        let failed = self.failed();
        self.request(0, vip, PORT, Duration::from_millis(100));
        self.run_still(100)?;
        if self.failed() > failed {
            return Ok(());
        }
        let creates = self.created(vip) - creates;
        if (creates, self.seen.proxied - answered) != (1, 1) {
            return Err(format!(
                "one request for VIP {vip} started {creates} pods, and {} were answered",
                self.seen.proxied - answered
            ));
        }
        Ok(())
    }

    fn created(&self, vip: u32) -> usize {
        self.calls.creates.get(&vip).copied().unwrap_or(0)
    }

    fn failed(&self) -> usize {
        let all = self.processes.all.values();
        all.filter(|process| process.end == Some(End::Crashed))
            .count()
    }
}
