//! The task that owns the state: it applies changes, answers calls, and starts the writing of decisions.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dormouse_cluster::{Key, Object};
use dormouse_scheduler_decide::PodKey;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::extenders::Extenders;
use crate::metrics::Metrics;
use crate::service::Call;
use crate::shards::Incoming;
use crate::shards::exchange::Exchange;
use crate::source::Seen;
use crate::state::{
    Attempt, Consultation, Explanation, Outcome, Replies, State, Step, Verdict, Work,
};
use crate::writer::Writer;

/// Interval at which backoffs and assumed pods that have expired are ended, without a further event.
const TICK: Duration = Duration::from_secs(1);

/// The kind of which the end of an election counts as the list.
pub(crate) const LEADERSHIP: &str = "the Lease";

/// The answer of a direct placement.
type Placed = oneshot::Sender<Result<String, String>>;

/// The end of a task.
enum Ended {
    /// A decision was written.
    Written {
        attempt: Option<Attempt>,
        outcome: Outcome,
    },
    /// Extenders have replied, or one has failed.
    Consulted {
        consultation: Box<Consultation>,
        replies: Result<Replies, String>,
    },
}

/// The task that owns the state. It never awaits the store: writes are tasks of their own.
pub(crate) struct Owner {
    state: State,
    clock: Clock,
    /// The kinds of objects that were not all seen yet.
    awaited: BTreeSet<&'static str>,
    edge: Arc<Edge>,
    metrics: Metrics,
    /// Writes and consultations that have not reported their end, and how many there may be.
    writes: usize,
    writes_max: usize,
    /// The connections to shards, if they decide.
    exchange: Option<Exchange>,
    /// The calls whose decision comes later.
    placing: HashMap<PodKey, Vec<Placed>>,
    ends: mpsc::Sender<Ended>,
    ended: mpsc::Receiver<Ended>,
}

impl Owner {
    pub(crate) fn new(
        writer: Writer,
        extenders: Extenders,
        (state, exchange): (State, Option<Exchange>),
        metrics: Metrics,
        kinds: BTreeSet<&'static str>,
    ) -> Self {
        let writes_max = writer.writes_max();
        let (ends, ended) = mpsc::channel(writes_max);
        let clock = Clock::start();
        let edge = Edge {
            writer,
            extenders,
            metrics: metrics.clone(),
            clock,
        };
        Self {
            state,
            clock,
            awaited: kinds,
            edge: Arc::new(edge),
            metrics,
            writes: 0,
            writes_max,
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
                Some(ended) = self.ended.recv() => self.finish_all(ended),
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
        if let (Some(exchange), Some(lead)) = (&mut self.exchange, self.state.lead()) {
            exchange.send(self.clock.now(), lead);
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
        let Key { namespace, name } = pod.key();
        let key = PodKey { namespace, name };
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

    /// Takes all ends that there are: the writes that follow begin together, and share requests.
    fn finish_all(&mut self, first: Ended) {
        self.finish(first);
        while let Ok(ended) = self.ended.try_recv() {
            self.finish(ended);
        }
    }

    fn finish(&mut self, ended: Ended) {
        self.writes -= 1;
        match ended {
            Ended::Written {
                attempt: Some(attempt),
                outcome,
            } => self.state.finish(self.clock.now(), attempt, outcome),
            Ended::Written { attempt: None, .. } => {}
            Ended::Consulted {
                consultation,
                replies,
            } => {
                let now = self.clock.now();
                if let Some(step) = self.state.consulted(*consultation, replies) {
                    self.act(step, now);
                }
            }
        }
    }

    /// Calls are answered between the decisions: a wake does not wait for all pods of the queue.
    fn start_writes(&mut self, calls: &mut mpsc::Receiver<Call>) {
        while self.writes < self.writes_max {
            if let Ok(call) = calls.try_recv() {
                self.answer(call);
            }
            let now = self.clock.now();
            let Some(step) = self.state.step(now) else {
                return;
            };
            let began = step.began().unwrap_or(now);
            self.act(step, began);
        }
    }

    /// Starts what a step of an attempt asks for, which was decided on since `decided`.
    fn act(&mut self, step: Step, decided: Timestamp) {
        if step.is_attempt() {
            self.metrics.decided(self.clock.since(decided));
        }
        let (edge, ends) = (Arc::clone(&self.edge), self.ends.clone());
        match step {
            Step::Early => return,
            Step::Ask(consultation) => drop(tokio::spawn(edge.consult(consultation, ends))),
            Step::Write(work) => drop(tokio::spawn(edge.write(work, ends))),
        }
        self.writes += 1;
    }
}

/// What the tasks beside this one need.
struct Edge {
    writer: Writer,
    extenders: Extenders,
    metrics: Metrics,
    clock: Clock,
}

impl Edge {
    /// Asks the extenders, and reports their replies.
    async fn consult(self: Arc<Self>, consultation: Box<Consultation>, ends: mpsc::Sender<Ended>) {
        let replies = self.extenders.consult(&consultation).await;
        let consulted = Ended::Consulted {
            consultation,
            replies,
        };
        // The receiver is dropped only at shutdown.
        drop(ends.send(consulted).await);
    }

    /// Writes one decision, and reports the end.
    async fn write(self: Arc<Self>, work: Box<Work>, ends: mpsc::Sender<Ended>) {
        let Work {
            pod,
            attempt,
            verdict,
        } = *work;
        let took = |attempt: &Attempt| self.clock.since(attempt.began());
        if let (Verdict::Rejected(rejection), Some(attempt)) = (&verdict, &attempt) {
            self.metrics.rejected(attempt, rejection, took(attempt));
        }
        let written = self
            .writer
            .write(&pod, &verdict, (attempt.as_ref(), &self.extenders));
        let outcome = written.await;
        if let (Verdict::Placed(_), Some(attempt)) = (&verdict, &attempt) {
            self.metrics
                .written(attempt, outcome, took(attempt), self.clock.now());
        }
        // The receiver is dropped only at shutdown.
        drop(ends.send(Ended::Written { attempt, outcome }).await);
    }
}
