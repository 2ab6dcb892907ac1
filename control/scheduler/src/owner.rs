//! The task that owns the state: it applies changes, answers calls, and starts the writing of decisions.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::extenders::Extenders;
use crate::metrics::Metrics;
use crate::service::Call;
use crate::source::Seen;
use crate::state::{
    Attempt, Consultation, Explanation, Outcome, Replies, State, Step, Verdict, Work,
};
use crate::writer::Writer;

/// Decisions that are being written, and pods about which extenders are asked.
const WRITES_MAX: usize = 64;
/// Interval at which backoffs and assumed pods that have expired are ended, without a further event.
const TICK: Duration = Duration::from_secs(1);

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
        began: Instant,
    },
}

/// The task that owns the state. It never awaits the store: writes are tasks of their own.
pub(crate) struct Owner {
    state: State,
    clock: Clock,
    /// The kinds of objects that were not all seen yet.
    awaited: BTreeSet<&'static str>,
    writer: Writer,
    extenders: Extenders,
    metrics: Metrics,
    /// Writes and consultations that have not reported their end.
    writes: usize,
    ends: mpsc::Sender<Ended>,
    ended: mpsc::Receiver<Ended>,
}

impl Owner {
    pub(crate) fn new(
        writer: Writer,
        extenders: Extenders,
        state: State,
        metrics: Metrics,
        kinds: BTreeSet<&'static str>,
    ) -> Self {
        let (ends, ended) = mpsc::channel(WRITES_MAX);
        Self {
            state,
            clock: Clock::start(),
            awaited: kinds,
            writer,
            extenders,
            metrics,
            writes: 0,
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
                Some(ended) = self.ended.recv() => self.finish(ended),
                _ = tick.tick() => self.tick(),
            }
            if self.awaited.is_empty() {
                self.start_writes(&mut calls);
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
            Call::Place { pod, reply } => {
                let began = Instant::now();
                let placed = self.state.place(now, &pod);
                self.metrics.decided(began.elapsed());
                drop(reply.send(placed));
            }
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
                began,
            } => {
                let decided = Instant::now();
                if let Some(step) = self.state.consulted(*consultation, replies) {
                    self.act(step, began, decided);
                }
            }
        }
    }

    /// Calls are answered between the decisions: a wake does not wait for all pods of the queue.
    fn start_writes(&mut self, calls: &mut mpsc::Receiver<Call>) {
        while self.writes < WRITES_MAX {
            if let Ok(call) = calls.try_recv() {
                self.answer(call);
            }
            let began = Instant::now();
            let Some(step) = self.state.step(self.clock.now()) else {
                return;
            };
            self.act(step, began, began);
        }
    }

    /// Starts what a step of an attempt asks for, which was decided on since `decided`.
    fn act(&mut self, step: Step, began: Instant, decided: Instant) {
        if step.is_attempt() {
            self.metrics.decided(decided.elapsed());
        }
        let ends = self.ends.clone();
        match step {
            Step::Early => return,
            Step::Ask(consultation) => {
                let extenders = self.extenders.clone();
                tokio::spawn(consult(extenders, consultation, began, ends));
            }
            Step::Write(work) => {
                let (writer, metrics) = (self.writer.clone(), self.metrics.clone());
                let extenders = self.extenders.clone();
                let edge = Edge {
                    writer,
                    extenders,
                    metrics,
                    clock: self.clock,
                };
                tokio::spawn(edge.write(work, began, ends));
            }
        }
        self.writes += 1;
    }
}

/// Asks the extenders.
async fn consult(
    extenders: Extenders,
    consultation: Box<Consultation>,
    began: Instant,
    ends: mpsc::Sender<Ended>,
) {
    let replies = extenders.consult(&consultation).await;
    let consulted = Ended::Consulted {
        consultation,
        replies,
        began,
    };
    // The receiver is dropped only at shutdown.
    drop(ends.send(consulted).await);
}

/// What the writing of a decision needs.
struct Edge {
    writer: Writer,
    extenders: Extenders,
    metrics: Metrics,
    clock: Clock,
}

impl Edge {
    /// Writes one decision, and reports the end.
    async fn write(self, work: Box<Work>, began: Instant, ends: mpsc::Sender<Ended>) {
        let Work {
            pod,
            attempt,
            verdict,
        } = *work;
        if let Verdict::Rejected(rejection) = &verdict {
            self.metrics
                .rejected(attempt.as_ref(), rejection, began.elapsed());
        }
        let scheduler = attempt.as_ref().map_or("", Attempt::scheduler);
        let written = self
            .writer
            .write(&pod, &verdict, (scheduler, &self.extenders));
        let outcome = written.await;
        if let (Verdict::Placed(_), Some(attempt)) = (&verdict, &attempt) {
            self.metrics
                .written(attempt, outcome, began.elapsed(), self.clock.now());
        }
        // The receiver is dropped only at shutdown.
        drop(ends.send(Ended::Written { attempt, outcome }).await);
    }
}
