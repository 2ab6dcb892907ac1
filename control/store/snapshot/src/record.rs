//! What a snapshot holds.

use std::collections::BTreeMap;

use bytes::Bytes;

/// A key at one revision; `mvccpb.KeyValue`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyValue {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Revision of the first put after the key's last deletion.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// Revision of this value.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// Puts since creation, this one included.
    #[prost(int64, tag = "4")]
    pub version: i64,
    /// The value.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    /// Lease whose expiry deletes the key; 0 is none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// A lease; `leasepb.Lease`. It expires a whole TTL after the restore.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Lease {
    /// ID of the lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// The granted TTL, in seconds.
    #[prost(int64, tag = "2")]
    pub ttl_s: i64,
}

/// A user or a role: its name and its encoded `authpb` message.
pub type Named = (Bytes, Bytes);

/// Users, roles and whether they are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// Whether requests need a user.
    pub enabled: bool,
    /// Revision of the users and roles; 0 where none is stored.
    pub revision: u64,
    /// Users, as `authpb.User`.
    pub users: Vec<Named>,
    /// Roles, as `authpb.Role`.
    pub roles: Vec<Named>,
}

/// Everything besides the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The revision of the store.
    pub revision: i64,
    /// All leases.
    pub leases: Vec<Lease>,
    /// Raised alarms, each an encoded `etcdserverpb.AlarmMember`.
    pub alarms: Vec<Bytes>,
    /// Users and roles.
    pub auth: Auth,
}

/// The keys that exist, in order.
pub type Pairs = BTreeMap<Bytes, KeyValue>;

/// The state in a snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Everything besides the keys.
    pub head: Head,
    /// The keys that exist at its revision.
    pub pairs: Pairs,
}
