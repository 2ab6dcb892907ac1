//! What kube-apiserver's storage needs of its store, by the calls that it makes: objects by compare-and-swap, lists in
//! pages, watches with bookmarks, shared leases, and the compaction of two servers that take turns.

mod compaction;
mod leases;
mod lists;
mod objects;
mod reflector;
mod storage;
mod watches;
