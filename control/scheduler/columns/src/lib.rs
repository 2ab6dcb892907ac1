//! The scheduler's fast core: kube-scheduler's decisions from an index over the cluster, at a cost of what changed.
//!
//! Reading order: what is decided ([`Decision`]) and the [`Engine`]; the amounts of nodes and of a request; groups of equal
//! nodes, the tree of cells with bounds, and segments of neighbours; kinds of nodes and counted pods; classes of pods; the
//! lens, the window, the survey and the search of one decision. What is known of pods that no node can have is kept in a
//! ledger. What the index does not hold is decided by
//! [`dormouse_scheduler_decide::Scheduler`] on the same cluster. Nothing here has a clock, a thread or a socket.
#![forbid(unsafe_code)]

mod decision;

mod engine;

mod failures;

mod number;

mod state;

mod demand;

mod tops;

mod group;

mod cell;

mod tree;

mod segment;

mod row;

mod kinds;

mod by_node;

mod counters;

mod nominated;

mod index;

mod class;

mod positions;

mod rejections;

mod ledger;

mod lens;

mod window;

mod survey;

mod spread;

mod search;

pub use decision::Decision;
pub use engine::Engine;
