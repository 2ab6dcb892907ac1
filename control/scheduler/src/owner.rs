//! The task that owns the state: it applies changes, answers calls, and starts the writing of decisions.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dormouse_scheduler_decide::PodKey;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::service::Call;
use crate::shards::Incoming;
use crate::shards::exchange::Exchange;
use crate::source::Seen;
use crate::state::{Attempt, Explanation, Outcome, State, Step, Verdict, Work};
use crate::writer::Writer;

/// Decisions that are being written.
const WRITES_MAX: usize = 64;
/// Interval at which backoffs and assumed pods that have expired are ended, without a further event.
const TICK: Duration = Duration::from_secs(1);

/// The kind of which the end of an election counts as the list.
pub(crate) const LEADERSHIP: &str = "the Lease";

/// The answer of a direct placement.
type Placed = oneshot::Sender<Result<String, String>>;

/// The end of the writing of a decision.
struct Written {
    attempt: Option<Attempt>,
    outcome: Outcome,
}

/// The task that owns the state. It never awaits the store: writes are tasks of their own.
pub(crate) struct Owner {
    state: State,
    clock: Clock,
    /// The kinds of objects that were not all seen yet.
    awaited: BTreeSet<&'static str>,
    writer: Writer,
    metrics: Metrics,
    /// Writes that have not reported their end.
    writes: usize,
    /// The connections to shards, if they decide.
    exchange: Option<Exchange>,
    /// The calls whose decision comes later.
    placing: HashMap<PodKey, Vec<Placed>>,
    ends: mpsc::Sender<Written>,
    ended: mpsc::Receiver<Written>,
}

impl Owner {
    pub(crate) fn new(
        writer: Writer,
        (state, exchange): (State, Option<Exchange>),
        metrics: Metrics,
        kinds: BTreeSet<&'static str>,
    ) -> Self {
        let (ends, ended) = mpsc::channel(WRITES_MAX);
        Self {
            state,
            clock: Clock::start(),
            awaited: kinds,
            writer,
            metrics,
            writes: 0,
            exchange,
            placing: HashMap::new(),
            ends,
            ended,
        }
    }

    /// Runs until the changes end.
    pub(crate) async fn run(
        mut self,
        mut seen: mpsc::Receiver<Vec<Seen>>,
        mut calls: mpsc::Receiver<Call>,
    ) {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                batch = seen.recv() => match batch {
                    Some(batch) => self.apply(batch),
                    None => return,
                },
                Some(call) = calls.recv(), if self.awaited.is_empty() => self.answer(call),
                Some(written) = self.ended.recv() => self.finish(written),
                Some(incoming) = Exchange::next(&mut self.exchange) => self.receive(incoming),
                _ = tick.tick() => self.tick(),
            }
            self.exchange();
            if self.awaited.is_empty() {
                self.start_writes(&mut calls);
            }
            self.exchange();
            self.answer_placed();
        }
    }

    fn receive(&mut self, incoming: Incoming) {
        let now = self.clock.now();
        if let (Some(exchange), Some(lead)) = (&self.exchange, self.state.lead())
            && exchange.receive(now, lead, incoming)
        {
            self.awaited.remove(LEADERSHIP);
        }
    }

    /// Sends to shards what they are to know, or to decide on.
    fn exchange(&mut self) {
        let now = self.clock.now();
        if let (Some(exchange), Some(lead)) = (&mut self.exchange, self.state.lead()) {
            exchange.send(now, lead);
        }
    }

    /// Answers the calls whose decision came later.
    fn answer_placed(&mut self) {
        for (key, placed) in self.state.take_placed() {
            for reply in self.placing.remove(&key).unwrap_or_default() {
                drop(reply.send(placed.clone()));
            }
        }
    }

    fn tick(&mut self) {
        self.state.tick(self.clock.now());
        self.metrics.follow(&mut self.state);
    }

    /// Answers a call. Its caller may have timed out: a pod that was placed for it is then assumed until it expires.
    fn answer(&mut self, call: Call) {
        let now = self.clock.now();
        match call {
            Call::Place { pod, reply } => self.place(now, *pod, reply),
            Call::Check { reply } => {
                let _ = reply.send(());
            }
            Call::Explain { key, reply } => {
                let explanation = self.state.explanation(now, &key);
                // Beside decisions: it looks at each node.
                tokio::task::spawn_blocking(move || {
                    reply.send(explanation.map(Explanation::topics))
                });
            }
        }
    }

    fn place(&mut self, now: Timestamp, pod: Pod, reply: Placed) {
        let key = PodKey {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
        };
        match self.state.place(now, &Arc::new(pod)) {
            Some(placed) => {
                self.metrics.decided(self.clock.since(now));
                drop(reply.send(placed));
            }
            None => self.placing.entry(key).or_default().push(reply),
        }
    }

    fn apply(&mut self, batch: Vec<Seen>) {
        let now = self.clock.now();
        for seen in batch {
            match seen {
                Seen::Change(change) => self.state.apply(now, &change),
                Seen::Related(related) => self.state.apply_related(now, &related),
                Seen::Announced(pod) => self.state.announce(now, &pod),
                Seen::Listed(kind) => drop(self.awaited.remove(kind)),
            }
        }
    }

    fn finish(&mut self, Written { attempt, outcome }: Written) {
        self.writes -= 1;
        if let Some(attempt) = attempt {
            self.state.finish(self.clock.now(), attempt, outcome);
        }
    }

    /// Calls are answered between the decisions: a wake does not wait for all pods of the queue.
    fn start_writes(&mut self, calls: &mut mpsc::Receiver<Call>) {
        while self.writes < WRITES_MAX {
            if let Ok(call) = calls.try_recv() {
                self.answer(call);
            }
            let now = self.clock.now();
            let Some(step) = self.state.step(now) else {
                return;
            };
            if step.is_attempt() {
                let began = step.began().unwrap_or(now);
                self.metrics.decided(self.clock.since(began));
            }
            let Step::Write(work) = step else {
                continue;
            };
            self.writes += 1;
            let (writer, ends) = (self.writer.clone(), self.ends.clone());
            tokio::spawn(write(writer, work, self.clock, self.metrics.clone(), ends));
        }
    }
}

/// Writes one decision, and reports the end.
async fn write(
    writer: Writer,
    work: Box<Work>,
    clock: Clock,
    metrics: Metrics,
    ends: mpsc::Sender<Written>,
) {
    let Work {
        pod,
        attempt,
        verdict,
    } = *work;
    let took = |attempt: &Attempt| clock.since(attempt.began());
    if let (Verdict::Rejected(rejection), Some(attempt)) = (&verdict, &attempt) {
        metrics.rejected(attempt, rejection, took(attempt));
    }
    let outcome = writer.write(&pod, &verdict, attempt.as_ref()).await;
    if let (Verdict::Placed(_), Some(attempt)) = (&verdict, &attempt) {
        metrics.written(attempt, outcome, took(attempt), clock.now());
    }
    // The receiver is dropped only at shutdown.
    drop(ends.send(Written { attempt, outcome }).await);
}
