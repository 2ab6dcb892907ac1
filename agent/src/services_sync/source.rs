//! The source of Services: a folder of manifests, or a Kubernetes API server.

use std::io;
use std::path::PathBuf;

use tracing::warn;

use super::ServicesSyncError;
use crate::source::kubernetes::Kubernetes;
use crate::source::manifests::{self, Manifests, Problem};
use crate::source::object::Change;

/// Where the objects come from.
#[derive(Debug)]
pub enum Origin {
    /// A folder of manifests.
    Manifests(PathBuf),
    /// A Kubernetes API server, of which the own Node is followed already.
    Kubernetes(Box<Kubernetes>),
}

/// A source of objects.
#[derive(Debug)]
pub(super) enum Source {
    Manifests(Manifests),
    Kubernetes(Box<Kubernetes>),
}

/// Changed objects.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) changes: Vec<Change>,
    /// More batches belong to these changes.
    pub(super) more: bool,
    /// Whether all objects are known: no part of the source was unreadable.
    pub(super) whole: bool,
}

impl Source {
    /// Opens the source. Returns the first batch, if the source can be read at once.
    pub(super) async fn open(origin: Origin) -> Result<(Self, Option<Batch>), ServicesSyncError> {
        match origin {
            Origin::Manifests(folder) => {
                let opened = tokio::task::spawn_blocking(move || Manifests::open(&folder)).await;
                let opened = opened.map_err(io::Error::other);
                let (manifests, first) = opened.map_err(ServicesSyncError::Addresses)??;
                Ok((Self::Manifests(manifests), Some(read(first))))
            }
            Origin::Kubernetes(mut kubernetes) => {
                kubernetes.follow_services();
                Ok((Self::Kubernetes(kubernetes), None))
            }
        }
    }

    /// The next changes. Cancel safe.
    pub(super) async fn next(&mut self) -> Batch {
        match self {
            Self::Manifests(manifests) => read(manifests.next().await),
            Self::Kubernetes(kubernetes) => {
                let batch = kubernetes.next().await;
                Batch {
                    changes: batch.changes,
                    more: batch.more,
                    whole: true,
                }
            }
        }
    }
}

/// A batch of manifests, without its problems, which are logged.
fn read(batch: manifests::Batch) -> Batch {
    for problem in &batch.problems {
        warn!(%problem, "manifest");
    }
    Batch {
        changes: batch.changes,
        more: batch.more,
        whole: batch.problems.iter().all(Problem::loses_nothing),
    }
}
