//! The calls of the store that actions make.

use std::fmt;
use std::sync::Arc;

use dormouse_cluster::{App, Key, Object};
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::PodStatus;
use k8s_openapi::api::core::v1::Pod;

use crate::action::{Action, Entry, Status};
use crate::event::{AppRead, Event, Input, RevisionRead};
use crate::nodes::ConnectedNode;

pub(super) enum Job {
    Read {
        vip: u32,
        app: Key,
    },
    ReadRevision {
        vip: u32,
        revision: Key,
    },
    Create {
        vip: u32,
        pod: Box<Pod>,
    },
    Publish {
        vip: u32,
        app: Arc<App>,
        status: Status,
        entry: Option<Entry>,
    },
    Delete {
        vip: u32,
        pod: Key,
    },
    PodStatus {
        pod: Key,
        status: Box<PodStatus>,
    },
    NodeUp(ConnectedNode),
    NodeDown(String),
    /// Asks for the epoch, at this time.
    Confirm(Boottime),
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { vip, .. } => write!(f, "read VIP {vip}"),
            Self::ReadRevision { revision, .. } => write!(f, "read revision {revision}"),
            Self::Create { pod, .. } => write!(f, "create {}", pod.key()),
            Self::Publish {
                vip, status, entry, ..
            } => {
                let (state, ready, wanted) = (status.state, status.ready, status.wanted);
                let pods = entry.as_ref().map(|entry| entry.backends.len());
                write!(
                    f,
                    "publish VIP {vip}: {state}, {ready} of {wanted}, entry: {pods:?}"
                )
            }
            Self::Delete { pod, .. } => write!(f, "delete {pod}"),
            Self::PodStatus { pod, status } => {
                let (phase, ready) = (status.phase(), status.ready);
                write!(f, "status of {pod}: {phase:?}, ready: {ready}")
            }
            Self::NodeUp(node) => write!(f, "node up {}", node.name),
            Self::NodeDown(node) => write!(f, "node down {node}"),
            Self::Confirm(at) => write!(f, "the epoch is asked for at {} ms", at.0 / 1_000_000),
        }
    }
}

impl Job {
    /// The call of the store that an action makes.
    pub(super) fn of(action: Action) -> Option<Self> {
        Some(match action {
            Action::Read { vip, app } => Self::Read { vip, app },
            Action::ReadRevision { vip, revision } => Self::ReadRevision { vip, revision },
            Action::Create { vip, pod } => Self::Create { vip, pod },
            Action::Publish {
                vip,
                app,
                status,
                entry,
            } => Self::Publish {
                vip,
                app,
                // The wall clock is no part of a run.
                status: Status {
                    last_wake: None,
                    ..status
                },
                entry,
            },
            Action::Delete { vip, pod } => Self::Delete { vip, pod },
            Action::PodStatus { pod, status, .. } => Self::PodStatus {
                pod: pod.key(),
                status,
            },
            Action::NodeUp {
                node,
                status,
                boot_id,
            } => Self::NodeUp(ConnectedNode {
                name: node,
                status: *status,
                boot_id,
            }),
            Action::NodeDown { node } => Self::NodeDown(node),
            _ => return None,
        })
    }

    /// The end of the write of a node.
    pub(super) fn node_written(&self) -> Option<Input> {
        let (Self::NodeUp(ConnectedNode { name, .. }) | Self::NodeDown(name)) = self else {
            return None;
        };
        let node = name.clone();
        Some(Input::NodeWritten { node })
    }

    /// The result of a write whose epoch another control has replaced.
    pub(super) fn refused(self) -> Option<Input> {
        let event = match self {
            Self::Read { vip, .. } => Event::AppRead {
                vip,
                read: AppRead::Failed,
            },
            Self::ReadRevision { vip, .. } => Event::RevisionRead {
                vip,
                read: RevisionRead::Failed,
            },
            Self::Create { vip, pod } => Event::Created {
                vip,
                pod: pod.key(),
                written: false,
            },
            Self::Publish { vip, .. } => Event::Published { vip, app: None },
            Self::Delete { vip, pod } => Event::Deleted {
                vip,
                pod,
                gone: false,
            },
            Self::PodStatus { pod, .. } => return Some(Input::StatusWritten { pod }),
            Self::NodeUp(_) | Self::NodeDown(_) => return self.node_written(),
            Self::Confirm(_) => return None,
        };
        Some(event.into())
    }
}
