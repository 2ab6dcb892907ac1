//! The timelines of wakes: the last ones of each app, with the time of each stage, and how each ended.

mod ending;

use std::collections::{BTreeMap, HashMap, VecDeque};

use dormouse_cluster::Key;
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::Stages;
use serde_json::{Value, json};

use ending::Ending;
pub(crate) use ending::Outcome;

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
    ending: Option<Ending>,
    over: bool,
}

/// The stages in their usual order.
const STAGES: [&str; 8] = [
    "see",
    "park",
    "decide",
    "place",
    "wire",
    "start",
    "ready",
    "first byte",
];

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
        let known = STAGES.into_iter().zip(self.ends());
        let known = known.filter_map(|(name, at)| Some((name, at?)));
        known
            .map(|(name, at)| Stage {
                name,
                at,
                ms: self.ms(at),
            })
            .collect()
    }

    /// The end of each stage.
    fn ends(&self) -> [Option<Boottime>; STAGES.len()] {
        let pod = self.pod();
        let stage = |ns: u64| (ns > 0).then_some(Boottime(ns));
        let stages = pod.map(|pod| pod.stages).unwrap_or_default();
        [
            self.seen,
            self.parked,
            Some(self.decided),
            pod.and_then(|pod| pod.placed),
            stage(stages.cni_end_ns),
            stage(stages.started_ns),
            stage(stages.ready_ns),
            self.first_byte,
        ]
    }

    /// Milliseconds since the wake's first event.
    fn ms(&self, at: Boottime) -> f64 {
        let first = self.ends().into_iter().flatten().min();
        at.since(first.unwrap_or(self.decided)).as_secs_f64() * 1e3
    }

    /// The stages that were not recorded, although later ones were.
    fn missing(&self) -> Vec<&'static str> {
        let ends = self.ends();
        let last = ends.iter().rposition(Option::is_some).unwrap_or(0);
        let all = STAGES.into_iter().zip(ends).take(last);
        all.filter(|(_, at)| at.is_none())
            .map(|(name, _)| name)
            .collect()
    }

    /// The duration of each stage whose begin is known, in milliseconds: the stage before it was recorded too. The first packet and
    /// the first request come in either order, and one alone begins a wake.
    pub(crate) fn durations(&self) -> Vec<(&'static str, f64)> {
        let ends = self.ends().map(|at| at.map(|at| self.ms(at)));
        let [see, park, decide, ..] = ends;
        let begin = see.into_iter().chain(park).reduce(f64::min);
        let mut durations = Vec::new();
        if let (Some(park), Some(see)) = (park, see) {
            durations.push(("park", park - see));
        }
        if let (Some(begin), Some(decide)) = (begin, decide) {
            durations.push(("decide", decide - begin));
        }
        for index in 3..STAGES.len() {
            if let (Some(before), Some(end)) = (ends[index - 1], ends[index]) {
                durations.push((STAGES[index], end - before));
            }
        }
        durations
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
            "missing": self.missing(),
            "outcome": self.ending.as_ref().map(|ending| ending.outcome.name()),
            "endedMs": self.ending.as_ref().map(|ending| self.ms(ending.at)),
            "endedIn": self.ending.as_ref().and_then(|ending| ending.stage),
            "reason": self.ending.as_ref().and_then(|ending| ending.reason.clone()),
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
            ending: None,
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

    /// A pod was placed. The earliest report counts: the scheduler's answer, or the pod's node in the store.
    pub(crate) fn placed(&mut self, vip: u32, pod: &str, node: &str, at: Boottime) {
        if let Some(wake) = self.open(vip) {
            let candidate = wake.candidate(pod);
            node.clone_into(&mut candidate.node);
            candidate.placed = Some(candidate.placed.map_or(at, |placed| placed.min(at)));
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

    /// The first response began: the wake is complete. Returns the wake unless it has ended before.
    pub(crate) fn answered(&mut self, vip: u32, at: Boottime) -> Option<&Wake> {
        let wake = self.open(vip)?;
        let ready = wake.pod().is_some_and(|pod| pod.stages.ready_ns > 0);
        if !ready || at < wake.decided || wake.first_byte.is_some() {
            return None;
        }
        wake.first_byte = Some(at);
        let is_first = wake.ending.is_none();
        wake.end(at, Outcome::answered, None);
        is_first.then_some(wake)
    }

    /// The requests of a wake have ended without a response. Returns whether it is the first end of the wake.
    pub(crate) fn unanswered(
        &mut self,
        vip: u32,
        at: Boottime,
        outcome: Outcome,
        reason: Option<String>,
    ) -> bool {
        let wake = self.open(vip).filter(|wake| wake.ending.is_none());
        wake.map(|wake| wake.end(at, outcome, reason)).is_some()
    }

    /// A request was refused before it could be parked. Without an open wake it is one of its own: nothing else reports it.
    pub(crate) fn refused(&mut self, vip: u32, app: Key, at: Boottime) {
        self.begin(vip, app, at);
        if let Some(wake) = self.open(vip) {
            wake.end_in("park", at, Outcome::refused);
            wake.over = true;
        }
    }

    /// Whether the app's last wake goes on.
    pub(crate) fn has_open(&self, vip: u32) -> bool {
        self.of(vip).next().is_some_and(|wake| !wake.over)
    }

    /// The app fell asleep: later events do not belong to its last wake. Returns how it ended, if that was not known before.
    pub(crate) fn over(
        &mut self,
        vip: u32,
        now: Boottime,
        failed: Option<String>,
    ) -> Option<Outcome> {
        let wake = self.open(vip)?;
        wake.over = true;
        let outcome = if failed.is_some() {
            Outcome::failed
        } else {
            Outcome::abandoned
        };
        let is_open = wake.ending.is_none();
        if is_open {
            wake.end(now, outcome, failed);
        }
        is_open.then_some(outcome)
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
