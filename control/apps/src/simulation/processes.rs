//! The processes of pods, and what a node's agent knows of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_fleet::Boottime;
use dormouse_fleet::proto::{PodSpec, PodStatus, pod_status::Phase};
use dormouse_fleet_simulation::Random;

/// Longest start of a pod, milliseconds.
const START_MS_MAX: u64 = 400;
/// Longest wait of a stopping pod for its connections.
const DRAIN_MAX: Duration = Duration::from_secs(6);

/// A pod's process is reached by its address, of which this is the number. No two processes of a run have the same.
pub(super) struct Process {
    pub(super) vip: u32,
    pub(super) node: usize,
    pub(super) end: Option<End>,
    pub(super) ended_at: Boottime,
    /// Open connections.
    pub(super) open: u32,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// It failed, or its machine did.
    Crashed,
    /// Control had its pod removed.
    Removed,
}

/// All processes of a run, by number.
pub(super) struct Processes {
    pub(super) all: BTreeMap<u32, Process>,
    pub(super) random: Random,
    /// Stopping pods do not wait for their connections.
    pub(super) without_drain: bool,
    /// Connections that were open when their pod was stopped before the end of its grace period.
    pub(super) cut: u32,
    pub(super) removed: usize,
    /// Pods that nodes were sent to stop, since the last look.
    pub(super) stopped: Vec<PodSpec>,
}

impl Processes {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            all: BTreeMap::new(),
            random: Random::new(seed.wrapping_add(1 << 40)),
            without_drain: false,
            cut: 0,
            removed: 0,
            stopped: Vec::new(),
        }
    }

    pub(super) fn runs(&self, number: u32) -> bool {
        self.all
            .get(&number)
            .is_some_and(|process| process.end.is_none())
    }

    pub(super) fn is_removed(&self, number: u32) -> bool {
        self.all
            .get(&number)
            .is_none_or(|process| process.end == Some(End::Removed))
    }

    fn start(&mut self, vip: u32, node: usize) -> u32 {
        let number = u32::try_from(self.all.len()).unwrap() + 1;
        let process = Process {
            vip,
            node,
            end: None,
            ended_at: Boottime(0),
            open: 0,
        };
        self.all.insert(number, process);
        number
    }
}

enum State {
    Starting(Boottime),
    Running,
    Failed,
    /// Until its connections have ended, at most until then.
    Stopping(Boottime),
}

struct Pod {
    spec: PodSpec,
    number: u32,
    state: State,
    changed: bool,
}

/// The pods of one node, by uid.
#[derive(Default)]
pub(super) struct Runtime {
    pods: BTreeMap<String, Pod>,
    gone: Vec<PodSpec>,
}

/// The VIP index of a pod: its app's name ends with it.
fn vip_of(pod: &str) -> u32 {
    let app = pod.split('-').next().unwrap();
    app.trim_start_matches(char::is_alphabetic).parse().unwrap()
}

impl Runtime {
    pub(super) fn run(
        &mut self,
        spec: PodSpec,
        node: usize,
        now: Boottime,
        processes: &mut Processes,
    ) {
        match (self.pods.get_mut(&spec.uid), spec.stop) {
            (Some(pod), true) => pod.stop(now, processes),
            (Some(_), false) => {}
            (None, true) => self.gone.push(spec),
            (None, false) => {
                let number = processes.start(vip_of(&spec.name), node);
                let start = processes.random.period(START_MS_MAX);
                let pod = Pod {
                    number,
                    state: State::Starting(now + start),
                    changed: true,
                    spec,
                };
                self.pods.insert(pod.spec.uid.clone(), pod);
            }
        }
    }

    /// Stops all pods but these.
    pub(super) fn stop_others(
        &mut self,
        specs: &[PodSpec],
        now: Boottime,
        processes: &mut Processes,
    ) {
        for (uid, pod) in &mut self.pods {
            if !specs.iter().any(|spec| spec.uid == *uid) {
                pod.stop(now, processes);
            }
        }
    }

    /// The agent was restarted: all states are reported again.
    pub(super) fn report_all(&mut self) {
        for pod in self.pods.values_mut() {
            pod.changed = true;
        }
    }

    /// All processes are gone. Those that were to stop are cleared.
    pub(super) fn crash(&mut self, processes: &mut Processes) {
        for pod in self.pods.values_mut() {
            let process = processes.all.get_mut(&pod.number).unwrap();
            process.end.get_or_insert(End::Crashed);
            process.open = 0;
            if !matches!(pod.state, State::Stopping(_)) {
                pod.state = State::Failed;
            }
        }
    }

    /// The statuses to report.
    pub(super) fn step(&mut self, now: Boottime, processes: &mut Processes) -> Vec<PodStatus> {
        let mut statuses: Vec<_> = self.gone.drain(..).map(|spec| gone(&spec)).collect();
        self.pods.retain(|_, pod| {
            pod.step(now, processes);
            if pod.is_stopped(now, processes) {
                statuses.push(gone(&pod.spec));
                return false;
            }
            if std::mem::take(&mut pod.changed) {
                statuses.push(pod.status());
            }
            true
        });
        statuses
    }

    /// The uids of the pods that are not stopping.
    pub(super) fn uids(&self) -> impl Iterator<Item = &String> {
        let running = |pod: &Pod| !matches!(pod.state, State::Stopping(_));
        self.pods
            .iter()
            .filter(move |(_, pod)| running(pod))
            .map(|(uid, _)| uid)
    }
}

impl Pod {
    fn stop(&mut self, now: Boottime, processes: &mut Processes) {
        if !matches!(self.state, State::Stopping(_)) {
            processes.stopped.push(self.spec.clone());
            self.state = State::Stopping(now + DRAIN_MAX);
            self.changed = true;
        }
    }

    fn step(&mut self, now: Boottime, processes: &mut Processes) {
        if let State::Starting(until) = self.state
            && until <= now
        {
            self.state = if processes.random.once_in(60) {
                processes.all.get_mut(&self.number).unwrap().end = Some(End::Crashed);
                State::Failed
            } else {
                State::Running
            };
            self.changed = true;
        }
    }

    /// Whether a stopping pod has no connections left, or its time is over.
    fn is_stopped(&self, now: Boottime, processes: &mut Processes) -> bool {
        let State::Stopping(until) = self.state else {
            return false;
        };
        let drains = !processes.without_drain;
        let process = processes.all.get_mut(&self.number).unwrap();
        if drains && process.open > 0 && now < until {
            return false;
        }
        if now < until {
            processes.cut += process.open;
        }
        process.end.get_or_insert(End::Removed);
        process.ended_at = now;
        processes.removed += 1;
        true
    }

    fn status(&self) -> PodStatus {
        let phase = match self.state {
            State::Starting(_) => Phase::Pending,
            State::Running | State::Stopping(_) => Phase::Running,
            State::Failed => Phase::Failed,
        };
        PodStatus {
            address: format!(
                "2001:db8::{:x}:{:x}",
                self.number >> 16,
                self.number & 0xffff
            ),
            ready: matches!(self.state, State::Running),
            ..status(&self.spec, phase)
        }
    }
}

fn gone(spec: &PodSpec) -> PodStatus {
    status(spec, Phase::Gone)
}

fn status(spec: &PodSpec, phase: Phase) -> PodStatus {
    PodStatus {
        namespace: spec.namespace.clone(),
        name: spec.name.clone(),
        uid: spec.uid.clone(),
        phase: phase.into(),
        ..PodStatus::default()
    }
}
