//! The simulation: pods are placed one after the other, and each counts for the next ones. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_cluster::pod::has_ended;
use dormouse_scheduler_decide::{
    Attempt, Candidate, DEFAULT_SCHEDULER, Node, Nomination, Outcome, Pod, PodKey, Preemption,
    Profile, Scheduler, Snapshot,
};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::defaults;

/// What became of a pod.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) key: PodKey,
    pub(super) node: Option<String>,
    /// The node's total of all plugins; none if no other node passed, which is taken without scores then.
    score: Option<i64>,
    /// The nodes with the same total, any of which is right.
    best: Vec<String>,
    /// Pods that were evicted for it.
    victims: Vec<String>,
    /// The reason for which it has no node.
    message: Option<String>,
}

impl Placed {
    fn nowhere(key: PodKey, message: String) -> Self {
        Self {
            key,
            node: None,
            score: None,
            best: Vec::new(),
            victims: Vec::new(),
            message: Some(message),
        }
    }

    fn reason(&self) -> String {
        if let Some(message) = &self.message {
            return message.clone();
        }
        if self.victims.is_empty() {
            return String::new();
        }
        format!("evicts {}", self.victims.join(", "))
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let score = self.score.map(|score| score.to_string());
        let equal = self.node.as_ref().map(|_| self.best.len().to_string());
        vec![
            self.key.to_string(),
            self.node.clone().unwrap_or_default(),
            score.unwrap_or_default(),
            equal.unwrap_or_default(),
            self.reason(),
        ]
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "namespace": self.key.namespace,
            "name": self.key.name,
            "node": self.node,
            "score": self.score,
            "best": self.best,
            "victims": self.victims,
            "message": self.message,
        })
    }
}

/// A pod that waits for a node, and the name of its scheduler.
struct Pending {
    scheduler: String,
    pod: Pod,
}

/// A cluster, and the pods that wait for a node.
pub(super) struct Simulation {
    snapshot: Snapshot,
    /// By the scheduler's name.
    schedulers: BTreeMap<String, Scheduler>,
    pending: Vec<Pending>,
    /// The keys of these.
    known: BTreeSet<PodKey>,
}

impl Simulation {
    pub(super) fn new(profiles: Vec<Profile>) -> Self {
        let scheduler = |profile: Profile| (profile.name().to_owned(), Scheduler::new(profile));
        Self {
            snapshot: Snapshot::default(),
            schedulers: profiles.into_iter().map(scheduler).collect(),
            pending: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// Adds an object. The error is the reason for which it cannot be.
    pub(super) fn add(&mut self, kind: &str, mut value: Value) -> Result<(), String> {
        defaults::set(kind, &mut value)?;
        let text = |error: dormouse_scheduler_decide::Malformed| error.to_string();
        let snapshot = &mut self.snapshot;
        match kind {
            "Node" => snapshot.set_node(Node::parse(&read(value)?).map_err(text)?),
            "Pod" => return self.add_pod(read(value)?),
            "Namespace" => snapshot.set_namespace(&read(value)?),
            "Service" => snapshot.set_service(&read(value)?),
            "ReplicationController" => snapshot.set_replication_controller(&read(value)?),
            "ReplicaSet" => snapshot.set_replica_set(&read(value)?),
            "StatefulSet" => snapshot.set_stateful_set(&read(value)?),
            "PodDisruptionBudget" => snapshot.set_budget(&read(value)?),
            "PersistentVolume" => snapshot.set_volume(&read(value)?).map_err(text)?,
            "PersistentVolumeClaim" => snapshot.set_claim(&read(value)?).map_err(text)?,
            "StorageClass" => snapshot.set_storage_class(&read(value)?).map_err(text)?,
            "CSINode" => snapshot.set_csi_node(&read(value)?).map_err(text)?,
            "CSIDriver" => snapshot.set_csi_driver(&read(value)?),
            "CSIStorageCapacity" => snapshot.set_capacity(&read(value)?).map_err(text)?,
            "VolumeAttachment" => snapshot.set_attachment(&read(value)?),
            other => return Err(format!("kind {other} has no part in scheduling")),
        }
        Ok(())
    }

    fn add_pod(&mut self, mut api: ApiPod) -> Result<(), String> {
        defaults::set_of_pod(&mut api)?;
        let pod = Pod::parse(&api).map_err(|error| error.to_string())?;
        if api.status.as_ref().is_some_and(has_ended) {
            return Ok(());
        }
        if pod.node_name().is_empty() {
            let is_leaving = api.metadata.deletion_timestamp.is_some();
            // A pod that waits may be in several files.
            if is_leaving || !self.known.insert(pod.key().clone()) {
                return Ok(());
            }
            let scheduler = api.spec.and_then(|spec| spec.scheduler_name);
            self.pending.push(Pending {
                scheduler: scheduler.unwrap_or_else(|| DEFAULT_SCHEDULER.to_owned()),
                pod: pod.clone(),
            });
        }
        self.snapshot.set_pod(pod);
        Ok(())
    }

    /// Places all pending pods, those of higher priority first.
    pub(super) fn run(mut self) -> Vec<Placed> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|one| Reverse(one.pod.priority()));
        pending.into_iter().map(|one| self.place(one)).collect()
    }

    fn place(&mut self, Pending { scheduler, mut pod }: Pending) -> Placed {
        let key = pod.key().clone();
        let Some(scheduler) = self.schedulers.get_mut(&scheduler) else {
            return Placed::nowhere(key, format!("no profile has the schedulerName {scheduler}"));
        };
        self.snapshot.refresh();
        let mut attempt = scheduler.attempt(&self.snapshot, &pod);
        let mut victims = Vec::new();
        if let Some(candidate) = evicting(&attempt) {
            for victim in &candidate.victims {
                self.snapshot.remove_pod(victim);
                victims.push(victim.to_string());
            }
            for other in Preemption::cleared_nominations(&self.snapshot, &pod, &candidate.node) {
                self.snapshot.remove_nomination(&other);
            }
            pod = pod.nominated(&candidate.node);
            self.snapshot.set_pod(pod.clone());
            self.snapshot.refresh();
            attempt = scheduler.attempt(&self.snapshot, &pod);
        }
        let placed = outcome(key, &attempt, victims);
        if attempt.nomination == Nomination::Clear {
            self.snapshot.remove_nomination(&placed.key);
        }
        if let Some(node) = &placed.node {
            self.snapshot.set_pod(pod.bound(node.as_str(), None));
        }
        placed
    }
}

/// The node and the victims that the pod would evict there.
fn evicting(attempt: &Attempt) -> Option<&Candidate> {
    if attempt.nomination != Nomination::ToVictims {
        return None;
    }
    attempt.preemption.as_ref()?.chosen().map(AsRef::as_ref)
}

fn outcome(key: PodKey, attempt: &Attempt, victims: Vec<String>) -> Placed {
    let message = match &attempt.outcome {
        Outcome::Placed => {
            let node = attempt.first_of_heap().map(str::to_owned);
            let scores = attempt.scores.as_ref();
            return Placed {
                key,
                score: scores.and_then(|scores| scores.total.iter().max().copied()),
                best: attempt.best().into_iter().map(str::to_owned).collect(),
                message: node.is_none().then(|| "no node was chosen".to_owned()),
                node,
                victims,
            };
        }
        Outcome::Gated(status) => status.message(),
        Outcome::Unschedulable(message) => message.clone(),
        Outcome::Error(error) => format!("the attempt fails: {error}"),
    };
    Placed {
        victims,
        ..Placed::nowhere(key, message)
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}
