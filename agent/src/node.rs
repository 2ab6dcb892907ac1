//! The node's loop: one task that owns the fleet client, the pods and the kernel's events.

mod activators;
mod apply;
mod drops;
mod epoch;
mod gone;
mod probe;
mod routes;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dormouse_agent_datapath::{KernelEvent, KernelEventKind, KernelEvents, SharedDatapath};
use dormouse_command::error_chain;
use dormouse_fleet::client::LinkError;
use dormouse_fleet::node as fleet;
use dormouse_fleet::node::BackendLoad;
use dormouse_fleet::proto::{Count, Down, PodStatus, Woke, pod_status::Phase};
use dormouse_fleet::{Boottime, Stale};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_rustls::rustls::ClientConfig;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::runtime::Runtime;
use crate::source::fleet::{Signal, Source};
use crate::source::fleet_state::FleetState;

pub use activators::Activators;
pub use apply::{ApplyError, Graced};
pub use drops::Drops;
pub use epoch::EpochFile;
pub use gone::Gone;
pub use probe::Probe;
pub use routes::Routes;

/// Interval at which connection counts are read and reported.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// Interval of the garbage collection of flows; a table that is nearly full is swept with the counts.
const EXPIRE_EVERY: Duration = Duration::from_secs(30);
/// Pause before the next attempt while the stream's send queue is full.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// Maximum pause of the loop: without a stream nothing is due.
const IDLE_PAUSE: Duration = Duration::from_secs(1);

/// The standalone pods of a node.
pub struct Pods {
    /// Starts and stops them.
    pub runtime: Runtime,
    /// Their state changes.
    pub statuses: mpsc::Receiver<PodStatus>,
}

/// All parts that the loop owns.
pub struct Node {
    /// The node's half of the fleet protocol: followed VIPs, lease, messages that are due.
    pub fleet: fleet::Node,
    /// The fleet stream; none without control.
    pub source: Option<Source>,
    /// The maps and programs.
    pub datapath: SharedDatapath,
    /// Misses and wakes, from the programs' ring buffer.
    pub events: KernelEvents,
    /// None if another runtime (kubelet) runs the pods.
    pub pods: Option<Pods>,
    /// Routes to the activators.
    pub routes: Routes,
    /// State of the stream, for metrics.
    pub state: Arc<FleetState>,
    /// A message whose entries are written and whose grace period is not over; later messages wait for it.
    pub graced: Option<Graced>,
    /// VIPs that raise no miss for a moment.
    pub gone: Gone,
    /// Entries that are being dropped.
    pub drops: Option<Drops>,
    /// Whether the last entries are used without control and activators.
    pub stale: Stale,
    /// The activators' health endpoints.
    pub activators: Activators,
    /// The epoch of control, for the next agent.
    pub epoch: EpochFile,
    /// The TLS of probes; none: the node has not joined.
    pub probe_tls: Option<Arc<ClientConfig>>,
    /// A probe of the activators, while control does not grant leases.
    pub probe: Option<Probe>,
    /// Why the last attempt to open the stream failed, as it was logged.
    pub reported: String,
}

enum Event {
    Signal(Signal),
    Kernel(KernelEvent),
    Pod(PodStatus),
    Graced,
    Dropped,
    Probed(bool),
    Count,
    Expire,
    Due,
    Shutdown,
}

impl Node {
    /// Runs until `shutdown`. Programs, maps and pods stay.
    pub async fn run(mut self, shutdown: CancellationToken) {
        if self.source.is_some() {
            self.datapath.apps.expect_grants();
            self.use_stale(self.datapath.apps.is_stale());
        } else {
            // Without control the lease is never renewed: entries must not expire.
            self.datapath.apps.grant(u64::MAX);
        }
        let (mut count, mut expire) = (interval(COUNT_EVERY), interval(EXPIRE_EVERY));
        count.set_missed_tick_behavior(MissedTickBehavior::Skip);
        expire.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let due = self.due();
            let event = tokio::select! {
                () = shutdown.cancelled() => Event::Shutdown,
                () = apply::graced(&mut self.graced) => Event::Graced,
                () = drops::graced(&mut self.drops) => Event::Dropped,
                answered = probe::probed(&mut self.probe) => Event::Probed(answered),
                signal = next_signal(&mut self.source), if self.graced.is_none() => Event::Signal(signal),
                event = self.events.next() => Event::Kernel(event),
                Some(status) = next_status(&mut self.pods) => Event::Pod(status),
                _ = count.tick() => Event::Count,
                _ = expire.tick() => Event::Expire,
                () = tokio::time::sleep_until(due) => Event::Due,
            };
            if matches!(event, Event::Shutdown) {
                info!("stopping; the data path and the pods keep running");
                return;
            }
            self.take(event).await;
            self.send_due();
        }
    }

    async fn take(&mut self, event: Event) {
        match event {
            Event::Signal(Signal::Connected) => self.open(),
            Event::Signal(Signal::Down(down)) => self.apply(*down).await,
            Event::Signal(Signal::Lost(error)) => self.lost(&error),
            Event::Kernel(event) => self.noticed(event),
            Event::Pod(status) => self.report(status),
            Event::Graced => self.finish_graced(),
            Event::Dropped => self.end_drops(),
            Event::Probed(answered) => self.probed(answered),
            Event::Count => {
                self.count();
                let vips = self.gone.second();
                self.expect_misses(&vips);
                self.probe_activators(false);
                if self.datapath.apps.is_sweep_due() {
                    self.expire();
                }
                self.begin_drops();
            }
            Event::Expire => self.expire(),
            Event::Due => self.check_silence(),
            Event::Shutdown => {}
        }
    }

    fn open(&mut self) {
        let hello = self.fleet.open(Boottime::now());
        if let Some(source) = &mut self.source {
            source.open(hello);
        }
    }

    /// Applies a message. Messages are applied in order; the loop goes on while one waits for a grace period.
    async fn apply(&mut self, down: Down) {
        self.state.connected(true);
        let step = match self.fleet.receive(down, Boottime::now()) {
            Ok(step) => step,
            Err(error) => return self.refuse(&error),
        };
        if let Err(error) = self.epoch.write(self.fleet.epoch()) {
            warn!(%error, "failed to write the epoch of control for the next agent");
        }
        if let Err(error) = self.begin(&step).await {
            return self.refuse(&error);
        }
        if step.grace {
            self.graced = Some(Graced::begin(&self.datapath, step));
        } else {
            self.finish(step);
        }
    }

    fn finish_graced(&mut self) {
        if let Some(graced) = self.graced.take() {
            self.finish(graced.step);
        }
    }

    /// Closes the stream after a failed message: without an acknowledgement the node's lease expires, and a new stream starts
    /// with the full state.
    fn refuse(&mut self, error: &dyn std::error::Error) {
        let cause = error.source().map(ToString::to_string);
        warn!(%error, cause, "failed to apply a message of control; reconnecting");
        self.close();
    }

    fn lost(&mut self, error: &LinkError) {
        let reason = error_chain(error);
        // Also if there was no stream before: control may refuse the node, and says why.
        if self.state.connected(false) || reason != self.reported {
            warn!(
                error = reason,
                "no fleet stream; entries stay until the node lease expires"
            );
            self.reported = reason;
        }
        self.fleet.close();
        self.probe_activators(false);
    }

    /// Probes the activators if control does not grant leases; `wait`: after the interval of probes.
    fn probe_activators(&mut self, wait: bool) {
        let connected = self.state.is_connected();
        let endpoints = self.activators.endpoints();
        if endpoints.is_empty() || !self.stale.is_due(connected, Boottime::now()) {
            self.probe = None;
        } else if self.probe.is_none() {
            let interval = self.stale.interval();
            let wait = if wait { interval } else { Duration::ZERO };
            let tls = self.probe_tls.clone();
            self.probe = Some(Probe::begin(endpoints.to_vec(), tls, (wait, interval)));
        }
    }

    fn probed(&mut self, answered: bool) {
        self.probe = None;
        if let Some(stale) = self.stale.probed(answered, Boottime::now()) {
            self.use_stale(stale);
            if stale {
                warn!(
                    "neither control nor an activator answers: the last entries are used, also after the end of the node lease"
                );
            } else {
                info!("an activator answers: entries are used under the node lease only");
                if let Some(source) = &mut self.source {
                    source.retry_soon();
                }
            }
        }
        self.probe_activators(true);
    }

    fn use_stale(&self, stale: bool) {
        if let Err(error) = self.datapath.apps.use_stale(stale) {
            warn!(%error, "divided traffic is refused until an activator answers");
        }
        self.state.stale(stale);
    }

    fn close(&mut self) {
        self.state.connected(false);
        self.fleet.close();
        self.probe_activators(false);
        self.graced = None;
        if let Some(source) = &mut self.source {
            source.close();
        }
    }

    fn check_silence(&mut self) {
        if self.fleet.is_silent(Boottime::now()) {
            warn!("no lease from control for too long; reconnecting");
            self.close();
        }
    }

    fn noticed(&mut self, event: KernelEvent) {
        let now = Boottime::now();
        // A miss from before this agent: the packet's port is not known, and its activator has it.
        let portless = event.kind == KernelEventKind::Miss && event.protocol == 0;
        // A VIP without an entry may belong to a sleeping app: control decides, and wakes each app once.
        let woke = Woke {
            vip: event.vip,
            at_ns: event.at_ns,
            port: event.port.into(),
            protocol: event.protocol.into(),
        };
        let followed = if portless {
            self.fleet.missed(event.vip, now)
        } else {
            self.fleet.woke(woke, now)
        };
        if !followed && !self.gone.add(event.vip) {
            self.expect_misses(&[event.vip]);
        }
    }

    fn report(&mut self, status: PodStatus) {
        if status.phase() == Phase::Gone
            && let Some(pods) = &mut self.pods
        {
            pods.runtime.forget(&status.uid);
        }
        self.withdraw_ended(&status);
        self.fleet.pod(status);
    }

    /// Without control, the agent removes a pod that has ended from its own entries.
    fn withdraw_ended(&mut self, status: &PodStatus) {
        let ended = matches!(
            status.phase(),
            Phase::Succeeded | Phase::Failed | Phase::Gone
        );
        if !ended || self.source.is_none() || self.state.is_connected() {
            return;
        }
        let Ok(address) = status.address.parse() else {
            return;
        };
        self.fleet.withdraw(address);
        if let Err(error) = self.datapath.apps.withdraw(address) {
            warn!(%error, pod = status.name, "failed to remove a pod that has ended from the entries");
        }
    }

    fn count(&mut self) {
        let counts = self.datapath.apps.counts().into_iter().map(|count| Count {
            vip: count.vip,
            interval_ns: count.interval_ns,
            connections: count.connections,
            connection_ns: count.connection_ns,
            open: count.open,
        });
        let datapath = &self.datapath;
        let loads = |vip| loads(datapath, vip);
        self.fleet
            .count_interval(counts.collect(), loads, Boottime::now());
    }

    fn expect_misses(&self, vips: &[u32]) {
        if let Err(error) = self.datapath.apps.expect_misses(vips) {
            warn!(%error, "failed to remove the entries of VIPs that do not exist");
        }
    }

    /// Runs on a thread of its own: to walk a full table takes a second, and wakes cannot wait that long.
    fn expire(&self) {
        let datapath = Arc::clone(&self.datapath);
        tokio::task::spawn_blocking(move || datapath.apps.expire_flows());
    }

    /// Sends the messages that are due, as long as the stream accepts them.
    fn send_due(&mut self) {
        let Some(source) = &self.source else { return };
        while source.has_room()
            && let Some(up) = self.fleet.next(Boottime::now())
        {
            source.send(up);
        }
    }

    fn due(&self) -> Instant {
        let now = Boottime::now();
        let wait = self
            .fleet
            .due()
            .map_or(IDLE_PAUSE, |due| due.since(now))
            .min(IDLE_PAUSE);
        let full = self
            .source
            .as_ref()
            .is_some_and(|source| !source.has_room());
        Instant::now() + if full { wait.max(FULL_PAUSE) } else { wait }
    }
}

/// The connections of a VIP's backends on this node.
fn loads(datapath: &SharedDatapath, vip: u32) -> Vec<BackendLoad> {
    let backends = datapath.backend_counts(vip).into_iter();
    let loads = backends.filter_map(|backend| match backend.address {
        IpAddr::V6(address) => Some(BackendLoad {
            address,
            port: backend.port,
            begun: backend.load.begun(),
            open: backend.load.open(),
        }),
        IpAddr::V4(_) => None,
    });
    loads.collect()
}

async fn next_signal(source: &mut Option<Source>) -> Signal {
    match source {
        Some(source) => source.next().await,
        None => std::future::pending().await,
    }
}

async fn next_status(pods: &mut Option<Pods>) -> Option<PodStatus> {
    match pods {
        Some(pods) => pods.statuses.recv().await,
        None => std::future::pending().await,
    }
}
