//! The pods of one app, and how far nodes and people know of them.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use dormouse_cluster::Key;
use dormouse_fleet::Boottime;

use crate::action::{Entry, Status};
use crate::pod::Seen;

/// How far nodes know a pod as a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposure {
    /// It was never in a published entry.
    Never,
    /// It is in the newest entry, or may be.
    Listed,
    /// It is in no entry from this version on.
    Unlisted(u64),
}

/// One pod of an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) created: Boottime,
    /// What the store says of it; none while it is being created.
    pub(crate) seen: Option<Seen>,
    pub(crate) template: String,
    pub(crate) ready_since: Option<Boottime>,
    /// Its node is lost, or it ended.
    pub(crate) failed: bool,
    /// It is to go; nobody is sent to it.
    pub(crate) leaving: bool,
    pub(crate) deleting: bool,
    pub(crate) exposure: Exposure,
}

impl Member {
    pub(crate) fn new(created: Boottime, template: String) -> Self {
        Self {
            created,
            seen: None,
            template,
            ready_since: None,
            failed: false,
            leaving: false,
            deleting: false,
            exposure: Exposure::Never,
        }
    }

    /// Where it answers, if it does and is meant to.
    pub(crate) fn address(&self) -> Option<Ipv6Addr> {
        self.seen
            .as_ref()
            .and_then(|seen| seen.ready)
            .filter(|_| !self.leaving && !self.failed)
    }

    /// It counts towards the number that is wanted.
    pub(crate) fn lives(&self) -> bool {
        !self.leaving && !self.failed
    }

    pub(crate) fn node(&self) -> Option<&str> {
        self.seen.as_ref()?.node.as_deref()
    }
}

/// What nodes and people were told last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Published {
    pub(crate) status: Option<Status>,
    pub(crate) entry: Option<Entry>,
    pub(crate) version: u64,
    /// What is being written now.
    pub(crate) under_way: Option<(Status, Option<Listing>)>,
    /// The version with which the current run of proxy mode began.
    pub(crate) proxy_since: Option<u64>,
    /// No node uses an older version than this.
    pub(crate) settled: u64,
    pub(crate) settling: Option<u64>,
    /// No write is tried before this: the last one failed.
    pub(crate) retry_at: Option<Boottime>,
}

/// An entry with the pods that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) entry: Entry,
    pub(crate) pods: BTreeSet<Key>,
}
