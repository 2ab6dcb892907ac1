//! The pods of one app, and its published status and entry.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddrV6};

use dormouse_cluster::{Key, StoredApp};
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::Target;

use crate::action::{Action, Entry, Failure, Status};
use crate::pod::ObservedPod;

/// Whether nodes may use a pod as a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposure {
    /// It has never been in a published entry.
    Never,
    /// It is, or may be, in the newest entry.
    Listed,
    /// It is in no entry from this version on.
    Unlisted(u64),
}

/// One pod of an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) created: Boottime,
    /// The pod object in the store; none while it is being created.
    pub(crate) seen: Option<ObservedPod>,
    pub(crate) template: String,
    pub(crate) ready_since: Option<Boottime>,
    /// Its node was lost, or it ended.
    pub(crate) failed: bool,
    /// It will be deleted and gets no new connections.
    pub(crate) draining: bool,
    pub(crate) deleting: bool,
    pub(crate) exposure: Exposure,
    /// Its last request failed, although it is ready.
    pub(crate) fault: Option<PodFault>,
}

/// A request that a ready pod failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodFault {
    pub(crate) at: Boottime,
    pub(crate) failure: Failure,
}

impl Member {
    pub(crate) fn new(created: Boottime, template: String) -> Self {
        Self {
            created,
            seen: None,
            template,
            ready_since: None,
            failed: false,
            draining: false,
            deleting: false,
            exposure: Exposure::Never,
            fault: None,
        }
    }

    /// Its address, if it is ready and not draining.
    pub(crate) fn address(&self) -> Option<Ipv6Addr> {
        self.seen
            .as_ref()
            .and_then(|seen| seen.ready)
            .filter(|_| !self.draining && !self.failed)
    }

    /// Its socket, if it is ready and not draining. `port` is that of pods which do not have theirs.
    pub(crate) fn socket(&self, port: u16) -> Option<SocketAddrV6> {
        let port = self
            .seen
            .as_ref()
            .and_then(|seen| seen.port)
            .unwrap_or(port);
        let address = self.address()?;
        Some(SocketAddrV6::new(address, port, 0, 0))
    }

    /// Whether it counts towards the wanted number.
    pub(crate) fn is_live(&self) -> bool {
        !self.draining && !self.failed
    }

    /// Whether it is a pod of the app with this uid, and not of an earlier one of its name.
    pub(crate) fn is_owned(&self, uid: Option<&str>) -> bool {
        let owner = self.seen.as_ref().map(|seen| seen.owner.as_str());
        owner.is_none_or(|owner| owner == uid.unwrap_or_default())
    }

    pub(crate) fn node(&self) -> Option<&str> {
        self.seen.as_ref()?.node.as_deref()
    }
}

/// The last published status and entry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Published {
    pub(crate) status: Option<Status>,
    pub(crate) entry: Option<Entry>,
    /// The split in force when that was planned, also if nodes do not get it.
    pub(crate) split: Vec<Target>,
    pub(crate) version: u64,
    /// A node follows the VIP, and the fleet has no entry of it: the next publication answers, changed or not.
    pub(crate) wanted: bool,
    /// The write in progress.
    pub(crate) in_progress: Option<(Status, Option<Listing>)>,
    /// The newest change of the app that arrived meanwhile.
    pub(crate) changed: Option<Box<StoredApp>>,
    /// The version with which proxy mode began, while it lasts.
    pub(crate) proxy_since: Option<u64>,
    /// No node uses an older version than this.
    pub(crate) settled: u64,
    /// The version that is being waited for.
    pub(crate) settling: Option<u64>,
    /// Time of the next write, after a failed one.
    pub(crate) retry_at: Option<Boottime>,
}

impl Published {
    /// The entry in force, if the fleet asked for it. While another one is being written it may already be replaced there:
    /// the answer is given after the write.
    pub(crate) fn announce(&mut self, vip: u32) -> Option<Action> {
        let writing = self
            .in_progress
            .as_ref()
            .is_some_and(|(_, listing)| listing.is_some());
        let entry = self.entry.clone().filter(|_| self.wanted && !writing)?;
        self.wanted = false;
        Some(Action::Announce {
            vip,
            version: self.version,
            entry,
        })
    }
}

/// An entry, and the pods in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) entry: Entry,
    pub(crate) pods: BTreeSet<Key>,
    /// The split in force, also if nodes do not get it.
    pub(crate) split: Vec<Target>,
}
