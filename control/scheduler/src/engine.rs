//! The engine: the cluster, and the decision for one pod after another.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_scheduler_decide::{
    Attempt, Node, Nomination, Outcome, Plugin, Pod, PodKey, Preemption, Profile, Scheduler,
    Snapshot, Status,
};
use fastrand::Rng;

/// The decision for a pod. It changes nothing of the cluster.
#[derive(Clone, Debug)]
pub enum Decision {
    /// The pod does not enter the queue.
    Gated(Status),
    /// The pod is to be bound.
    Placed {
        /// To this node.
        node: String,
    },
    /// No node can have the pod now.
    Unschedulable {
        /// The text of the pod's condition.
        message: String,
        /// The plugins that rejected the pod, and may wake it.
        plugins: BTreeSet<Plugin>,
        /// What becomes of the pod's nomination.
        nomination: Nomination,
        /// Missing if preemption was not tried.
        preemption: Option<Preemption>,
    },
    /// The attempt failed.
    Error(String),
}

/// The cluster, and a scheduler for each profile.
#[derive(Debug)]
pub struct Engine {
    cluster: Snapshot,
    /// By the scheduler's name.
    schedulers: BTreeMap<String, Scheduler>,
    random: Rng,
}

impl Engine {
    /// The engine of an empty cluster. `seed` determines the choice among equal nodes.
    pub fn new(profiles: Vec<Profile>, seed: u64) -> Self {
        let scheduler = |profile: Profile| (profile.name().to_owned(), Scheduler::new(profile));
        Self {
            cluster: Snapshot::default(),
            schedulers: profiles.into_iter().map(scheduler).collect(),
            random: Rng::with_seed(seed),
        }
    }

    /// Adds a node, or replaces it.
    pub fn set_node(&mut self, node: Node) {
        self.cluster.set_node(node);
    }

    /// Removes a node. Its pods count again if it comes back.
    pub fn remove_node(&mut self, name: &str) {
        self.cluster.remove_node(name);
    }

    /// Adds a pod that is bound or nominated, or replaces it. Any other pod is removed.
    pub fn set_pod(&mut self, pod: Pod) {
        self.cluster.set_pod(pod);
    }

    /// Removes a pod, and its nomination.
    pub fn remove_pod(&mut self, key: &PodKey) {
        self.cluster.remove_pod(key);
    }

    /// Removes a pod's nomination.
    pub fn remove_nomination(&mut self, key: &PodKey) {
        self.cluster.remove_nomination(key);
    }

    /// The cluster, for changes of objects other than nodes and pods.
    pub fn cluster(&mut self) -> &mut Snapshot {
        &mut self.cluster
    }

    /// The cluster.
    pub fn snapshot(&self) -> &Snapshot {
        &self.cluster
    }

    /// Decides for a pod of a scheduler.
    pub fn decide(&mut self, scheduler_name: &str, pod: &Pod) -> Decision {
        self.cluster.refresh();
        let Some(scheduler) = self.schedulers.get_mut(scheduler_name) else {
            return Decision::Error(no_profile(scheduler_name));
        };
        scheduler.set_preemption_offset(usize::from(self.random.u16(..)));
        let attempt = scheduler.attempt(&self.cluster, pod);
        let drawn = attempt.draw(self.random.u64(..)).map(str::to_owned);
        match attempt.outcome {
            Outcome::Gated(status) => Decision::Gated(status),
            Outcome::Placed => match drawn {
                Some(node) => Decision::Placed { node },
                None => Decision::Error("no node was chosen".to_owned()),
            },
            Outcome::Unschedulable(message) => Decision::Unschedulable {
                message,
                plugins: attempt.unschedulable_plugins,
                nomination: attempt.nomination,
                preemption: attempt.preemption,
            },
            Outcome::Error(error) => Decision::Error(error),
        }
    }

    /// Everything that an attempt for the pod finds; later decisions are as without it. `None` if no profile has the name.
    pub fn explain(&mut self, scheduler_name: &str, pod: &Pod) -> Option<Attempt> {
        self.cluster.refresh();
        let mut scheduler = self.schedulers.get(scheduler_name)?.clone();
        Some(scheduler.attempt(&self.cluster, pod))
    }
}

fn no_profile(name: &str) -> String {
    format!("no profile has the scheduler name {name:?}")
}
