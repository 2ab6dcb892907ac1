//! The worker: plans the apps that divide their traffic, one plan of an app at a time, and executes the plans. All that it needs is in
//! the store, so a control that starts goes on where the one before ended.

mod due;
#[cfg(test)]
mod faults;
mod reconcile;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use dormouse_cluster::claim::Claims;
use dormouse_cluster::{Client, Key};
use dormouse_fleet::{Boottime, Handle as Fleet};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Surplus;
use super::family::{Children, Touch};
use crate::controller::checks::{Check, answer};
use crate::shared::Shared;
use due::Due;
use reconcile::{Ended, reconcile};

/// Apps that are planned at once.
const PLANS_MAX: usize = 32;
/// Wait before a plan that failed is repeated.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(1);
/// Longest wait for the nodes. They acknowledge in milliseconds, or their lease ends.
const SETTLE_MAX: Duration = Duration::from_mins(2);

/// The apps to plan, in the order of their changes.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    apps: Mutex<Vec<Touch>>,
    added: Notify,
}

impl Touched {
    /// Adds apps.
    pub(crate) fn add(&self, apps: Vec<Touch>) {
        if !apps.is_empty() {
            self.apps.lock().extend(apps);
            self.added.notify_one();
        }
    }

    fn take(&self) -> Vec<Touch> {
        std::mem::take(&mut *self.apps.lock())
    }
}

/// What executes plans.
pub(crate) struct Clients {
    /// It writes only while this control has the newest epoch.
    pub(crate) store: Client,
    pub(crate) claims: Claims,
    pub(crate) fleet: Fleet,
    pub(crate) shared: Arc<Shared>,
}

/// What this process knows of an app, to remove children in order.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// The revision of the store from which on no split sends traffic to a surplus child.
    since: u64,
    /// The time of that.
    at: Timestamp,
    /// No node uses an older entry of the app than this.
    settled: u64,
    /// The revision that is being waited for.
    settling: Option<u64>,
}

impl Known {
    /// What a plan has found, with what nodes have acknowledged since it began.
    fn after(self, now: Option<&Self>) -> Self {
        now.map_or(self, |now| Self {
            settled: now.settled,
            settling: now.settling,
            ..self
        })
    }

    /// No split sends traffic to a surplus child from this revision of the store on.
    fn since(revision: u64, at: Timestamp) -> Self {
        Self {
            since: revision,
            at,
            settled: 0,
            settling: None,
        }
    }

    fn is_settled(&self) -> bool {
        self.settled >= self.since
    }

    /// Whether a surplus child can be deleted: no node sends traffic to it, and no request waits there any more.
    fn is_over(&self, surplus: &Surplus, timeout: Duration, now: Timestamp) -> bool {
        let is_answered = surplus.sleeps || self.answered_at(timeout).is_none_or(|at| at <= now);
        self.is_settled() && is_answered
    }

    /// When all requests have a response that surplus children got: `timeout` is the longest time until that.
    fn answered_at(&self, timeout: Duration) -> Option<Timestamp> {
        let timeout = SignedDuration::try_from(timeout).ok()?;
        self.at.checked_add(timeout).ok()
    }
}

/// The end of a task.
enum Done {
    Planned(Key, Ended),
    Settled(Key, u64),
}

/// The worker.
pub(crate) struct Worker {
    clients: Arc<Clients>,
    touched: Arc<Touched>,
    queue: BTreeSet<Key>,
    children: Children,
    running: HashSet<Key>,
    known: HashMap<Key, Known>,
    due: Due,
    /// The time of the first plan.
    began: Option<Boottime>,
    tasks: JoinSet<Done>,
    checks: mpsc::Receiver<Check>,
}

impl Worker {
    pub(crate) fn new(
        clients: Clients,
        touched: Arc<Touched>,
        checks: mpsc::Receiver<Check>,
    ) -> Self {
        Self {
            clients: Arc::new(clients),
            touched,
            queue: BTreeSet::new(),
            children: Children::default(),
            running: HashSet::new(),
            known: HashMap::new(),
            due: Due::default(),
            began: None,
            tasks: JoinSet::new(),
            checks,
        }
    }

    /// Plans apps until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            for touch in self.touched.take() {
                self.queue.insert(self.children.touched(touch));
            }
            self.queue.append(&mut self.due.take(Timestamp::now()));
            self.start();
            let next = self.due.next();
            let wait = next.map(|at| at.duration_since(Timestamp::now()));
            let wait = wait.and_then(|wait| Duration::try_from(wait).ok());
            tokio::select! {
                () = self.touched.added.notified() => {}
                Some(check) = self.checks.recv() => answer(check),
                Some(done) = self.tasks.join_next() => {
                    if let Ok(done) = done {
                        self.done(done);
                    }
                }
                () = sleep(wait.unwrap_or_default()), if next.is_some() => {}
            }
        }
    }

    /// Starts the plans of waiting apps.
    fn start(&mut self) {
        let waiting = self.queue.iter().filter(|app| !self.running.contains(app));
        let room = PLANS_MAX.saturating_sub(self.running.len());
        let started: Vec<Key> = waiting.take(room).cloned().collect();
        for app in started {
            let began = *self.began.get_or_insert_with(Boottime::now);
            self.queue.remove(&app);
            self.due.remove(&app);
            self.running.insert(app.clone());
            let clients = Arc::clone(&self.clients);
            let (known, children) = (self.known.get(&app).copied(), self.children.of(&app));
            self.tasks.spawn(async move {
                let ended = reconcile(&clients, &app, children, known, began).await;
                Done::Planned(app, ended)
            });
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Settled(app, version) => {
                if let Some(known) = self.known.get_mut(&app) {
                    known.settling = None;
                    known.settled = known.settled.max(version);
                    self.queue.insert(app);
                }
            }
            Done::Planned(app, ended) => {
                self.running.remove(&app);
                self.planned(app, ended);
            }
        }
    }

    fn planned(&mut self, app: Key, ended: Ended) {
        match ended {
            Ended::Over => drop(self.known.remove(&app)),
            Ended::Failed => {
                // A write without a response may have ended a share: nodes are asked from then on.
                self.known.remove(&app);
                self.due.insert(app, Timestamp::now() + RETRY_AFTER);
            }
            Ended::Done { known, due, settle } => {
                if let Some(due) = due {
                    self.due.insert(app.clone(), due);
                }
                let known = known.after(self.known.get(&app));
                let known = self.settle(&app, known, settle);
                self.known.insert(app, known);
            }
        }
    }

    /// Waits for the nodes, unless that is being done.
    fn settle(&mut self, app: &Key, mut known: Known, vip: Option<u32>) -> Known {
        let Some(vip) = vip.filter(|_| known.settling.is_none()) else {
            return known;
        };
        let version = known.since;
        known.settling = Some(version);
        let (clients, app) = (Arc::clone(&self.clients), app.clone());
        self.tasks.spawn(async move {
            if timeout(SETTLE_MAX, clients.fleet.settled(vip, version)).await.is_err() {
                tracing::warn!(%app, version, "nodes did not acknowledge an entry: a child is deleted nevertheless");
            }
            Done::Settled(app, version)
        });
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_during_a_plan_is_not_lost() {
        let began = Known {
            settling: Some(7),
            ..Known::since(7, Timestamp::UNIX_EPOCH)
        };
        let acknowledged = Known {
            settled: 7,
            settling: None,
            ..began
        };
        let planned = Known { since: 9, ..began };
        let known = planned.after(Some(&acknowledged));
        assert_eq!((known.since, known.settled, known.settling), (9, 7, None));
        assert_eq!(began.after(None).settling, Some(7));
    }

    #[test]
    fn a_child_without_a_share_is_deleted_when_nodes_know_it_and_no_request_waits_there() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let timeout = Duration::from_mins(5);
        let surplus = |sleeps| Surplus {
            child: Key::new("shop", "web-2"),
            sleeps,
        };
        let mut known = Known::since(7, at(0));
        assert!(!known.is_over(&surplus(true), timeout, at(400)));
        known.settled = 7;
        assert!(known.is_over(&surplus(true), timeout, at(1)));
        assert!(!known.is_over(&surplus(false), timeout, at(299)));
        assert!(known.is_over(&surplus(false), timeout, at(300)));
    }
}
