//! The task that owns the state: it applies changes, answers calls, and starts the writing of decisions.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dormouse_scheduler_decide::Profile;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::server::seed;
use crate::service::Call;
use crate::source::Seen;
use crate::state::{Attempt, Explanation, Outcome, State, Step, Verdict, Work};
use crate::writer::Writer;

/// Decisions that are being written.
const WRITES_MAX: usize = 64;
/// Interval at which backoffs and assumed pods that have expired are ended, without a further event.
const TICK: Duration = Duration::from_secs(1);

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
    ends: mpsc::Sender<Written>,
    ended: mpsc::Receiver<Written>,
}

impl Owner {
    pub(crate) fn new(
        writer: Writer,
        profiles: Vec<Profile>,
        metrics: Metrics,
        kinds: BTreeSet<&'static str>,
    ) -> Self {
        let (ends, ended) = mpsc::channel(WRITES_MAX);
        Self {
            state: State::new(profiles, seed()),
            clock: Clock::start(),
            awaited: kinds,
            writer,
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
                Some(written) = self.ended.recv() => self.finish(written),
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
            let began = Instant::now();
            let Some(step) = self.state.step(self.clock.now()) else {
                return;
            };
            if step.is_attempt() {
                self.metrics.decided(began.elapsed());
            }
            let Step::Write(work) = step else {
                continue;
            };
            self.writes += 1;
            let (writer, ends) = (self.writer.clone(), self.ends.clone());
            tokio::spawn(write(
                writer,
                work,
                began,
                self.clock,
                self.metrics.clone(),
                ends,
            ));
        }
    }
}

/// Writes one decision, and reports the end.
async fn write(
    writer: Writer,
    work: Box<Work>,
    began: Instant,
    clock: Clock,
    metrics: Metrics,
    ends: mpsc::Sender<Written>,
) {
    let Work {
        pod,
        attempt,
        verdict,
    } = *work;
    if let Verdict::Rejected(rejection) = &verdict {
        metrics.rejected(attempt.as_ref(), rejection, began.elapsed());
    }
    let scheduler = attempt.as_ref().map_or("", Attempt::scheduler);
    let outcome = writer.write(&pod, &verdict, scheduler).await;
    if let (Verdict::Placed(_), Some(attempt)) = (&verdict, &attempt) {
        metrics.written(attempt, outcome, began.elapsed(), clock.now());
    }
    // The receiver is dropped only at shutdown.
    drop(ends.send(Written { attempt, outcome }).await);
}
