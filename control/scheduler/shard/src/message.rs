//! What members send to each other.

use std::collections::BTreeSet;

use dormouse_scheduler_decide::{Answer, Nomination, PartId, Plugin, PodKey, Question};
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::object::Object;
use crate::view::{Epoch, Member, View};

/// An attempt: the leader numbers them. Two attempts for a pod have different numbers, so an answer to an earlier one is
/// known as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The view in which it was begun.
    pub epoch: Epoch,
    /// Its number in the leader's term.
    pub serial: u64,
}

/// An attempt to schedule a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The attempt.
    pub id: AttemptId,
    /// The pod.
    pub pod: Object<Pod>,
    /// All attempts before this one have ended.
    pub oldest: u64,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// From the leader: the members. Attempts of an earlier view have ended.
    View(View),
    /// To the leader.
    Adopted(Epoch),
    /// From the leader to a shard: changes in their order, without gaps. The first has this number.
    Changes {
        /// The view in which the leader began with the shard.
        stream: Epoch,
        /// The number of the first change.
        first: u64,
        /// The changes.
        changes: Vec<Change>,
    },
    /// To the leader: the number of changes that are applied.
    Applied {
        /// That of the changes.
        stream: Epoch,
        /// The number.
        len: u64,
    },
    /// From the leader to the member that gathers.
    Attempt(Task),
    /// Along the tree, away from the member that gathers.
    Ask {
        /// The attempt, and all that there is to know of it in its first round.
        task: Task,
        /// The number of the question in the attempt.
        round: u32,
        /// The question.
        question: Question,
        /// The shards that were left out before: they have no part in the attempt any more.
        excluded: BTreeSet<PartId>,
    },
    /// Along the tree, towards the member that gathers: the merged answers of shards.
    Answer {
        /// The attempt.
        id: AttemptId,
        /// The number of the question.
        round: u32,
        /// Missing if no shard is there.
        answer: Option<Box<Answer>>,
        /// The shards that were left out, because they took too long.
        excluded: BTreeSet<PartId>,
    },
    /// To the shard that was drawn: the pod is to be on the best node with this index.
    Claim {
        /// The attempt.
        id: AttemptId,
        /// The index among the best nodes of the shard.
        nth: usize,
    },
    /// From the shard.
    Claimed {
        /// The attempt.
        id: AttemptId,
        /// What became of the claim.
        claimed: Claimed,
    },
    /// To the leader.
    Decided {
        /// The attempt.
        id: AttemptId,
        /// The end.
        decision: Decision,
        /// The number of shards that were left out.
        missing: usize,
    },
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claimed {
    /// The node has the pod, until the leader confirms or releases it.
    Node(String),
    /// The node has changed since it was looked at, or is gone.
    Conflict,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// The node of the pod.
    Place(String),
    /// No node can have the pod.
    Reject(Rejection),
    /// The attempt failed; the error.
    Fail(String),
    /// Claims met too many conflicts: the pod is to be tried again.
    Retry,
}

/// A pod that no node can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// The text of the pod's condition.
    pub message: String,
    /// The plugins that may wake it.
    pub plugins: BTreeSet<Plugin>,
    /// The pods that are to go for it.
    pub victims: Option<Victims>,
    /// Whether the pod loses its nomination.
    pub is_cleared: bool,
}

/// The pods that are to go from a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victims {
    /// The node, to which the pod is nominated.
    pub node: String,
    /// The pods.
    pub pods: Vec<PodKey>,
}

impl Rejection {
    /// A rejection without victims.
    pub(crate) fn new(message: String, plugins: BTreeSet<Plugin>, nomination: Nomination) -> Self {
        Self {
            message,
            plugins,
            victims: None,
            is_cleared: nomination == Nomination::Clear,
        }
    }
}

/// Messages that are to be sent.
pub type Sent = Vec<(Member, Message)>;
