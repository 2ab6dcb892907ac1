//! The node's loop: joins what control says with what the kernel does, in one task that owns both.

mod apply;
mod routes;

use std::sync::Arc;
use std::time::Duration;

use dormouse_fleet::Boottime;
use dormouse_fleet::client::LinkError;
use dormouse_fleet::node as fleet;
use dormouse_fleet::proto::{Count, Down, PodStatus, pod_status::Phase};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::runtime::Runtime;
use crate::source::fleet::{Signal, Source};
use crate::source::fleet_state::FleetState;
use dormouse_agent_datapath::{KernelEvent, KernelEvents, SharedDatapath, expire_flows};

pub use apply::{ApplyError, Graced};
pub use routes::Routes;

/// How often the data plane's counts are read and told.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// How often flows that ended without a word are looked for.
const EXPIRE_EVERY: Duration = Duration::from_secs(30);
/// While the wire is full, how long until it is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// A node without a stream has nothing due; its loop looks around this often all the same.
const IDLE_PAUSE: Duration = Duration::from_secs(1);

/// The pods of a standalone node and what they say.
pub struct Pods {
    /// Runs them.
    pub runtime: Runtime,
    /// Their states.
    pub statuses: mpsc::Receiver<PodStatus>,
}

/// Everything that the loop owns.
pub struct Node {
    /// The fleet's half that knows what is followed and what is due.
    pub fleet: fleet::Node,
    /// The stream; none without control.
    pub source: Option<Source>,
    /// What the kernel does.
    pub datapath: SharedDatapath,
    /// Misses and wakes.
    pub events: KernelEvents,
    /// None when somebody else runs the pods.
    pub pods: Option<Pods>,
    /// Ways to the activators.
    pub routes: Routes,
    /// What metrics tell of the stream.
    pub state: Arc<FleetState>,
    /// A message whose entries are in place and that waits for the kernel; the next one waits for it.
    pub graced: Option<Graced>,
}

enum Event {
    Signal(Signal),
    Kernel(KernelEvent),
    Pod(PodStatus),
    Graced,
    Count,
    Expire,
    Due,
    Shutdown,
}

impl Node {
    /// Runs until `shutdown`. Data path and pods stay as they are.
    pub async fn run(mut self, shutdown: CancellationToken) {
        match self.source {
            // Nobody renews: entries last for ever.
            None => self.datapath.lock().grant(u64::MAX),
            Some(_) => self.datapath.lock().expect_grants(),
        }
        let (mut count, mut expire) = (interval(COUNT_EVERY), interval(EXPIRE_EVERY));
        count.set_missed_tick_behavior(MissedTickBehavior::Skip);
        expire.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let due = self.due();
            let event = tokio::select! {
                () = shutdown.cancelled() => Event::Shutdown,
                () = apply::graced(&mut self.graced) => Event::Graced,
                signal = next_signal(&mut self.source), if self.graced.is_none() => Event::Signal(signal),
                event = self.events.next() => Event::Kernel(event),
                Some(status) = next_status(&mut self.pods) => Event::Pod(status),
                _ = count.tick() => Event::Count,
                _ = expire.tick() => Event::Expire,
                () = tokio::time::sleep_until(due) => Event::Due,
            };
            if matches!(event, Event::Shutdown) {
                info!("stopping; data path and pods stay");
                return;
            }
            self.take(event).await;
            self.speak();
        }
    }

    async fn take(&mut self, event: Event) {
        match event {
            Event::Signal(Signal::Connected) => self.open(),
            Event::Signal(Signal::Down(down)) => self.obey(*down).await,
            Event::Signal(Signal::Lost(error)) => self.lost(&error),
            Event::Kernel(event) => self.noticed(event),
            Event::Pod(status) => self.told(status),
            Event::Graced => self.finish_graced(),
            Event::Count => self.count(),
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

    /// Puts a message in force, in its order; a wait for the kernel is left to the loop.
    async fn obey(&mut self, down: Down) {
        self.state.connected(true);
        let step = match self.fleet.receive(down, Boottime::now()) {
            Ok(step) => step,
            Err(error) => return self.refuse(&error),
        };
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

    /// Not acknowledged and soon without a lease, the node is safe; a new stream brings everything again.
    fn refuse(&mut self, error: &dyn std::error::Error) {
        let cause = error.source().map(ToString::to_string);
        warn!(%error, cause, "control's message is not in force: connecting again");
        self.close();
    }

    fn lost(&mut self, error: &LinkError) {
        if self.state.connected(false) {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            warn!(%error, cause, "no fleet stream; entries stay until the node's lease is over");
        }
        self.fleet.close();
    }

    fn close(&mut self) {
        self.state.connected(false);
        self.fleet.close();
        self.graced = None;
        if let Some(source) = &mut self.source {
            source.close();
        }
    }

    fn check_silence(&mut self) {
        if self.fleet.is_silent(Boottime::now()) {
            warn!("control grants nothing: connecting again");
            self.close();
        }
    }

    fn noticed(&mut self, event: KernelEvent) {
        // A VIP that this node does not follow may be asleep as well: control knows, and wakes each app once.
        self.fleet
            .woke(event.vip, Boottime(event.at_ns), Boottime::now());
    }

    fn told(&mut self, status: PodStatus) {
        if status.phase() == Phase::Gone
            && let Some(pods) = &mut self.pods
        {
            pods.runtime.forget(&status.uid);
        }
        self.fleet.pod(status);
    }

    fn count(&mut self) {
        let counts = self.datapath.lock().counts();
        for count in counts {
            self.fleet.count(Count {
                vip: count.vip,
                interval_ns: count.interval_ns,
                connections: count.connections,
                connection_ns: count.connection_ns,
                open: count.open,
            });
        }
    }

    /// On a thread of its own: a full table takes a second to walk, and wakes cannot wait.
    fn expire(&self) {
        let datapath = Arc::clone(&self.datapath);
        tokio::task::spawn_blocking(move || expire_flows(&datapath));
    }

    /// Says what is due as long as the wire takes it.
    fn speak(&mut self) {
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
