//! The sharded scheduler as processes: shards and relays that register by Leases, and a leader that decides with them.
//!
//! Reading order: the Leases of all members ([`leases`]) and what they say ([`registration`]); the gRPC streams between members,
//! in ([`endpoint`]) and out ([`peers`]); the process of a shard or a relay ([`member`]); and the leader's part: the adapter
//! between the scheduler's state and the leader's state machine ([`lead`]), and its connections ([`exchange`]).

pub(crate) mod endpoint;
pub(crate) mod exchange;
pub(crate) mod lead;
pub(crate) mod leases;
pub(crate) mod member;
pub(crate) mod peers;
pub(crate) mod registration;
mod trimmed;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use dormouse_fleet::client::{Target, endpoint as plain_endpoint};
use dormouse_scheduler_decide::Profile;
use dormouse_scheduler_shard::{Member, Message};

pub use crate::metrics::members::Metrics as MemberMetrics;
pub use exchange::Sharding;
pub use lead::Lead;
pub use leases::Leases;
pub use member::{Join, JoinError};
pub use registration::Role;

/// The messages of `members.proto`, and their tonic service.
#[expect(
    unused_qualifications,
    unreachable_pub,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    clippy::allow_attributes,
    reason = "generated; members.proto documents each field"
)]
pub(crate) mod proto {
    tonic::include_proto!("dormouse.scheduler.members.v1");
}

/// Messages queued for a member's state machine; a full queue blocks the streams that deliver them.
const INBOX_MAX: usize = 256;
/// Interval in which members send what is too old again.
const TICK: Duration = Duration::from_millis(50);
/// Bytes of one message, at most.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// What a member's state machine is to handle.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A message of another member.
    Message(Member, Box<Message>),
    /// To the leader: the members whose Leases were written since, and those whose Leases are gone.
    Members(Vec<registration::Registered>, Vec<String>),
    /// To the leader: it leads from now on, with this term.
    Lead(u64),
    /// Time has passed.
    Tick,
}

/// How the member at a URL is reached; an error if it must not be, with the reason.
pub type Reach = Arc<dyn Fn(&str) -> Result<Target, String> + Send + Sync>;

/// The members at plain text, wherever they are: for benchmarks and tests.
pub fn in_plain_text() -> Reach {
    Arc::new(|url| {
        let endpoint = plain_endpoint(url);
        endpoint.map(Into::into).map_err(|error| error.to_string())
    })
}

/// A number that is the same in all processes of one release with one profile.
fn profile_hash(profile: &Profile) -> u64 {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    format!("{profile:?}").hash(&mut hasher);
    hasher.finish()
}
