//! The sharded scheduler: nodes spread over shards, which decide together as one scheduler would.
//!
//! Reading order: the members and the tree that they form ([`View`]); the messages between them ([`Message`]); the shard,
//! which has nodes with their pods and answers questions about them ([`Shard`]); the relay, which passes questions on and
//! merges answers, and gathers the answers for some of the pods ([`Relay`]); and the leader, which has the whole cluster:
//! it sends changes to shards, begins attempts, and permits one binding for each pod ([`Leader`]). All are state machines
//! without a clock, a thread or a socket.
#![forbid(unsafe_code)]

mod object;

mod view;

mod change;

mod message;

mod shard;

mod relay;

mod leader;

pub use change::{Change, Kind, Thing};
pub use leader::{Effect, Leader, Limits, Output, Renewal, Seen};
pub use message::{AttemptId, Claimed, Decision, Message, Rejection, Sent, Task, Victims};
pub use object::Object;
pub use relay::Relay;
pub use shard::Shard;
pub use view::{Epoch, Member, View};
