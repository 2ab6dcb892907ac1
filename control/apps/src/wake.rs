//! The timelines of wakes: the last ones of each app, with the time of each stage.

use std::collections::{BTreeMap, HashMap, VecDeque};

use dormouse_cluster::Key;
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::Stages;
use serde_json::{Value, json};

/// Limit of the wakes of all apps; the oldest is dropped.
pub(crate) const WAKES_MAX: usize = 8_192;
/// Limit of the wakes of one app; its oldest is dropped.
pub(crate) const WAKES_PER_APP_MAX: usize = 16;

/// A pod that was placed during a wake.
#[derive(Debug, Clone, Default, PartialEq)]
struct Candidate {
    pod: String,
    node: String,
    placed: Option<Boottime>,
    stages: Stages,
}

/// One wake.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wake {
    /// The app.
    pub app: Key,
    seen: Option<Boottime>,
    seen_node: Option<String>,
    parked: Option<Boottime>,
    decided: Boottime,
    candidates: Vec<Candidate>,
    first_byte: Option<Boottime>,
    over: bool,
}

/// One stage of a wake.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stage {
    /// Its name, as in the `stage` label of the metrics.
    pub name: &'static str,
    /// Its end, by `CLOCK_BOOTTIME`.
    pub at: Boottime,
    /// Milliseconds since the wake's first event.
    pub ms: f64,
}

impl Wake {
    /// The stages that have ended, in their usual order.
    pub(crate) fn stages(&self) -> Vec<Stage> {
        let pod = self.pod();
        let stage = |ns: u64| (ns > 0).then_some(Boottime(ns));
        let stages = pod.map(|pod| pod.stages).unwrap_or_default();
        let all = [
            ("see", self.seen),
            ("park", self.parked),
            ("decide", Some(self.decided)),
            ("place", pod.and_then(|pod| pod.placed)),
            ("wire", stage(stages.cni_end_ns)),
            ("start", stage(stages.started_ns)),
            ("ready", stage(stages.ready_ns)),
            ("first byte", self.first_byte),
        ];
        let first = all
            .iter()
            .filter_map(|(_, at)| *at)
            .min()
            .unwrap_or(self.decided);
        let known = all.into_iter().filter_map(|(name, at)| Some((name, at?)));
        known
            .map(|(name, at)| Stage {
                name,
                at,
                ms: at.since(first).as_secs_f64() * 1e3,
            })
            .collect()
    }

    /// The wake as `WakeTimeline` JSON.
    pub(crate) fn json(&self) -> Value {
        let pod = self.pod();
        let stages: Vec<_> = self
            .stages()
            .iter()
            .map(|stage| json!({"name": stage.name, "atNs": stage.at.0, "ms": stage.ms}))
            .collect();
        json!({
            "apiVersion": "dormouse.dev/v1",
            "kind": "WakeTimeline",
            "app": self.app.to_string(),
            "node": pod.map(|pod| pod.node.clone()),
            "pod": pod.map(|pod| pod.pod.clone()),
            "seenNode": self.seen_node,
            "wireBeginNs": pod.map(|pod| pod.stages.cni_begin_ns).filter(|begin| *begin > 0),
            "stages": stages,
        })
    }

    /// The pod that became ready first, else the one placed first.
    fn pod(&self) -> Option<&Candidate> {
        let ready = self
            .candidates
            .iter()
            .filter(|candidate| candidate.stages.ready_ns > 0);
        ready
            .min_by_key(|candidate| candidate.stages.ready_ns)
            .or(self.candidates.first())
    }
}

/// The wakes of a shard's apps.
#[derive(Debug, Clone)]
pub(crate) struct Wakes {
    /// Limit of the wakes.
    limit: usize,
    /// The wakes of each app with their serial numbers, newest last.
    by_vip: HashMap<u32, VecDeque<(u64, Wake)>>,
    /// The app of each wake, by serial number.
    order: BTreeMap<u64, u32>,
    serial_last: u64,
}

impl Wakes {
    /// No wakes, as one of this many parts of those of all apps.
    pub(crate) fn new(parts: usize) -> Self {
        Self {
            limit: WAKES_MAX / parts,
            by_vip: HashMap::new(),
            order: BTreeMap::new(),
            serial_last: 0,
        }
    }

    /// Begins a wake.
    pub(crate) fn begin(&mut self, vip: u32, app: Key, decided: Boottime) {
        if self.of(vip).count() == WAKES_PER_APP_MAX {
            self.drop_oldest(vip);
        } else if self.order.len() == self.limit
            && let Some((_, oldest)) = self.order.first_key_value()
        {
            self.drop_oldest(*oldest);
        }
        self.serial_last += 1;
        self.order.insert(self.serial_last, vip);
        let wake = Wake {
            app,
            seen: None,
            seen_node: None,
            parked: None,
            decided,
            candidates: Vec::new(),
            first_byte: None,
            over: false,
        };
        let wakes = self.by_vip.entry(vip).or_default();
        wakes.push_back((self.serial_last, wake));
    }

    fn drop_oldest(&mut self, vip: u32) {
        let Some(wakes) = self.by_vip.get_mut(&vip) else {
            return;
        };
        if let Some((serial, _)) = wakes.pop_front() {
            self.order.remove(&serial);
        }
        if wakes.is_empty() {
            self.by_vip.remove(&vip);
        }
    }

    /// A node's kernel reported the first packet. The earliest report counts.
    pub(crate) fn seen(&mut self, vip: u32, node: &str, at: Boottime) {
        if let Some(wake) = self.open(vip)
            && wake.seen.is_none_or(|seen| at < seen)
        {
            (wake.seen, wake.seen_node) = (Some(at), Some(node.to_owned()));
        }
    }

    /// The first request was parked.
    pub(crate) fn parked(&mut self, vip: u32, at: Boottime) {
        if let Some(wake) = self.open(vip) {
            wake.parked.get_or_insert(at);
        }
    }

    /// A pod was placed.
    pub(crate) fn placed(&mut self, vip: u32, pod: &str, node: &str, at: Boottime) {
        if let Some(wake) = self.open(vip) {
            let candidate = wake.candidate(pod);
            node.clone_into(&mut candidate.node);
            candidate.placed = Some(at);
        }
    }

    /// A pod's start reached another stage.
    pub(crate) fn staged(&mut self, vip: u32, pod: &str, node: &str, stages: &Stages) {
        if let Some(wake) = self.open(vip) {
            let candidate = wake.candidate(pod);
            node.clone_into(&mut candidate.node);
            candidate.stages = *stages;
        }
    }

    /// The first response began: the wake is complete. Returns the wake on the first call only.
    pub(crate) fn answered(&mut self, vip: u32, at: Boottime) -> Option<&Wake> {
        let wake = self.open(vip)?;
        let ready = wake.pod().is_some_and(|pod| pod.stages.ready_ns > 0);
        if !ready || at < wake.decided || wake.first_byte.is_some() {
            return None;
        }
        wake.first_byte = Some(at);
        Some(wake)
    }

    /// The app fell asleep: later events do not belong to its last wake.
    pub(crate) fn over(&mut self, vip: u32) {
        if let Some(wake) = self.open(vip) {
            wake.over = true;
        }
    }

    /// The wakes of one app, newest first.
    pub(crate) fn of(&self, vip: u32) -> impl Iterator<Item = &Wake> {
        let wakes = self.by_vip.get(&vip).into_iter();
        wakes.flat_map(|wakes| wakes.iter().rev().map(|(_, wake)| wake))
    }

    fn open(&mut self, vip: u32) -> Option<&mut Wake> {
        let (_, newest) = self.by_vip.get_mut(&vip)?.back_mut()?;
        Some(newest).filter(|wake| !wake.over)
    }
}

impl Wake {
    fn candidate(&mut self, pod: &str) -> &mut Candidate {
        let position = self
            .candidates
            .iter()
            .position(|candidate| candidate.pod == pod)
            .unwrap_or_else(|| {
                self.candidates.push(Candidate {
                    pod: pod.to_owned(),
                    ..Candidate::default()
                });
                self.candidates.len() - 1
            });
        &mut self.candidates[position]
    }
}

#[cfg(test)]
mod tests;
