//! kube-scheduler's decisions: for a pod and a cluster, which nodes it may go to, which are best, and whose pods would have
//! to go first.
//!
//! Reading order: what is read of a pod ([`Pod`]), a node ([`Node`]) and the rest of the cluster ([`Snapshot`]); the plugins
//! and their arguments ([`Profile`]); an attempt ([`Scheduler::attempt`]), also over a cluster in parts, which exchange
//! questions and answers ([`Part`], [`Gather`]); preemption; and the queue, in which rejected
//! pods wait for a change that may help them ([`queue`]). Nothing here has a clock, a thread or a socket.
#![forbid(unsafe_code)]

mod malformed;

mod label_syntax;

mod interner;

mod labels;

mod selector;

mod amount;

mod resources;

mod requests;

mod taints;

mod node_selector;

mod affinity;

mod spread;

mod ports;

mod volumes;

mod pod;

mod node;

mod images;

mod node_tree;

mod node_state;

mod budgets;

mod workloads;

mod snapshot;

mod status;

mod profile;

mod plugins;

mod cycle;

mod message;

mod preempt;

pub mod facts;

pub mod queue;

pub use cycle::{
    Answer, Attempt, Candidates, Conclusion, Counts, Gather, Judge, Looked, Nomination, Outcome,
    Part, PartId, PluginScores, Question, Ranges, Scheduler, Scores, Step, Survey, Top, Trial,
    Vetoes, Window, gate,
};
pub use images::{ImageCensus, ImageState};
pub use interner::Interner;
pub use malformed::Malformed;
pub use node::Node;
pub use pod::{Pod, PodKey, Rules};
pub use preempt::{Candidate, Preemption, Tried};
pub use profile::{Configuration, DEFAULT_SCHEDULER, Extender, Profile};
pub use requests::Requests;
pub use snapshot::{NodeEvent, Snapshot};
pub use status::{Code, Plugin, Status};
