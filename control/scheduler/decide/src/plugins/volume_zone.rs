//! VolumeZone: volumes with labels of zones and regions.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::node_state::NodeState;
use crate::plugins::volume_restrictions::claim_not_found;
use crate::plugins::{Cycle, CycleState, PreFilter};
use crate::snapshot::Snapshot;
use crate::status::Status;
use crate::volumes::{Claim, PersistentVolume, PodVolume};

/// Labels of zones and regions, each with the one that a node may have in its place.
const LABELS: [(&str, &str); 4] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

/// A label that a node must have, and its values.
struct Topology {
    key: &'static str,
    instead: &'static str,
    values: BTreeSet<String>,
}

/// The labels of the volumes of the cycle's pod.
#[derive(Clone, Default)]
pub(crate) struct Topologies(Arc<Vec<Topology>>);

/// Collects the labels of the pod's volumes; skips pods whose volumes have none.
pub(crate) fn pre_filter(cycle: Cycle<'_>, state: &mut CycleState) -> Result<PreFilter, Status> {
    let pod = cycle.pod;
    let mut all = Vec::new();
    for volume in &pod.volumes {
        let PodVolume::Claim(name) = volume else {
            continue;
        };
        if name.is_empty() {
            return Err(Status::unresolvable("PersistentVolumeClaim had no name"));
        }
        let claim = cycle.snapshot.volumes.claim(&pod.key.namespace, name);
        let claim = claim.ok_or_else(|| Status::unresolvable(claim_not_found(name)))?;
        if let Some(volume) = volume_of(cycle.snapshot, claim)? {
            all.extend(topologies(volume));
        }
    }
    if all.is_empty() {
        return Ok(PreFilter::Skip);
    }
    state.zone = Topologies(Arc::new(all));
    Ok(PreFilter::Done)
}

/// The volume of a claim; `None` if it will be bound once the node is known.
fn volume_of<'a>(
    snapshot: &'a Snapshot,
    claim: &Claim,
) -> Result<Option<&'a PersistentVolume>, Status> {
    let name = &claim.volume;
    if !name.is_empty() {
        let volume = snapshot.volumes.persistent.get(name);
        let not_found = || Status::unresolvable(format!("persistentvolume {name:?} not found"));
        return volume.map(Some).ok_or_else(not_found);
    }
    let class = &claim.class;
    let reason = if class.is_empty() {
        "PersistentVolumeClaim had no pv name and storageClass name".to_owned()
    } else {
        match snapshot.volumes.class(claim) {
            None => format!("storageclass.storage.k8s.io {class:?} not found"),
            Some(found) if found.is_delayed() => return Ok(None),
            Some(found) if found.binding_mode.is_none() => {
                format!("VolumeBindingMode not set for StorageClass {class:?}")
            }
            Some(_) => "PersistentVolume had no name".to_owned(),
        }
    };
    Err(Status::unresolvable(reason))
}

/// Several values of a label are separated by two underscores; a list with an empty one does not count.
fn topologies(volume: &PersistentVolume) -> impl Iterator<Item = Topology> {
    LABELS.into_iter().filter_map(|(key, instead)| {
        let values: BTreeSet<String> = volume
            .labels
            .get(key)?
            .split("__")
            .map(|value| value.trim().to_owned())
            .collect();
        (!values.contains("")).then_some(Topology {
            key,
            instead,
            values,
        })
    })
}

/// Rejects nodes outside the zones and regions of a volume. A node that has no such label is in all.
pub(crate) fn filter(state: &CycleState, node: &NodeState) -> Result<(), Status> {
    let labels = &node.node.labels;
    if !LABELS.iter().any(|(key, _)| labels.contains_key(key)) {
        return Ok(());
    }
    let is_inside = |topology: &Topology| {
        let value = labels
            .get(topology.key)
            .or_else(|| labels.get(topology.instead));
        value.is_some_and(|value| topology.values.contains(value))
    };
    if state.zone.0.iter().all(is_inside) {
        return Ok(());
    }
    let reason = "node(s) had no available volume zone";
    Err(Status::unresolvable(reason))
}
