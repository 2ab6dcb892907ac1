//! Errors of requests, with etcd's texts: clients compare them.

use crate::auth::AuthError;

/// An error of a request. The request changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The key of a request, a compare or an operation is empty.
    #[error("etcdserver: key is not provided")]
    EmptyKey,
    /// An operation is empty, or a put with `ignore_value` or `ignore_lease` names a missing key.
    #[error("etcdserver: key not found")]
    KeyNotFound,
    /// A put has both `ignore_value` and a value.
    #[error("etcdserver: value is provided")]
    ValueProvided,
    /// A put has both `ignore_lease` and a lease.
    #[error("etcdserver: lease is provided")]
    LeaseProvided,
    /// A list of operations or compares is longer than [`crate::Limits::txn_ops_max`].
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    /// Two operations of one transaction write the same key.
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    /// The sort order or the sort target is not in etcd's enumeration.
    #[error("etcdserver: invalid sort option")]
    InvalidSortOption,
    /// The encoded write is larger than [`crate::Limits::request_bytes_max`].
    #[error("etcdserver: request is too large")]
    RequestTooLarge,
    /// The encoded request is larger than [`crate::Limits::message_bytes_max`].
    #[error("trying to send message larger than max")]
    MessageTooLarge,
    /// The store exceeds its memory quota; reads, deletes and compaction still work.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// The alarm CORRUPT is active; reads still work.
    #[error("etcdserver: corrupt cluster")]
    Corrupt,
    /// The journal failed: the write may be lost. See [`crate::Store::journal_failure`].
    #[error("etcdserver: the journal failed, writes are refused until the server is restarted")]
    JournalFailed,
    /// Long lists that clients do not read hold too many bytes.
    #[error("etcdserver: too many requests")]
    TooManyRequests,
    /// The revision is below the compacted revision.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    /// The revision is above the current revision.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    /// The lease does not exist, or has expired.
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    /// A grant names the ID of an existing lease.
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    /// The TTL is above [`crate::lease::TTL_MAX_S`].
    #[error("etcdserver: too large lease TTL")]
    LeaseTtlTooLarge,
    /// The user may not do what the request asks.
    #[error(transparent)]
    Auth(#[from] AuthError),
}
