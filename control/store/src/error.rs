//! Why a request is refused, in etcd's words: clients compare these texts.

/// A refusal. Nothing of the request was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A key is missing in a request, a compare or an operation.
    #[error("etcdserver: key is not provided")]
    EmptyKey,
    /// An operation is empty, or a put wants to keep what is not there.
    #[error("etcdserver: key not found")]
    KeyNotFound,
    /// A put says both to keep the value and to change it.
    #[error("etcdserver: value is provided")]
    ValueProvided,
    /// A put says both to keep the lease and to change it.
    #[error("etcdserver: lease is provided")]
    LeaseProvided,
    /// A list of operations or compares is too long.
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    /// Two operations of one transaction write the same key.
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    /// A sort order or target that does not exist.
    #[error("etcdserver: invalid sort option")]
    InvalidSortOption,
    /// The encoded request is larger than a write may be.
    #[error("etcdserver: request is too large")]
    RequestTooLarge,
    /// The encoded request is larger than the transport carries.
    #[error("trying to send message larger than max")]
    MessageTooLarge,
    /// The store is at its memory quota; reads, deletes and compaction still work.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// The revision is below the compacted one.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    /// The revision has not happened yet.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    /// No such lease.
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    /// The lease's number is taken.
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    /// The lease would last longer than etcd allows.
    #[error("etcdserver: too large lease TTL")]
    LeaseTtlTooLarge,
}
