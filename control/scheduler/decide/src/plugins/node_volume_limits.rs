//! NodeVolumeLimits: the number of CSI volumes that a node can attach.

use std::collections::{BTreeMap, BTreeSet};

use crate::node_state::NodeState;
use crate::plugins::volume_restrictions::claim_not_found;
use crate::plugins::{Cycle, PreFilter};
use crate::pod::Pod;
use crate::snapshot::Snapshot;
use crate::status::Status;
use crate::volumes::{Claim, PodVolume};

/// A driver and a volume of it.
type Attached = BTreeSet<(String, String)>;

/// Skips pods without claims. A source that Kubernetes translates to a CSI volume is not supported.
pub(crate) fn pre_filter(cycle: Cycle<'_>) -> Result<PreFilter, Status> {
    let mut has_claims = false;
    for volume in &cycle.pod.volumes {
        match volume {
            PodVolume::InTree(field) => return Err(in_tree("spec.volumes", field)),
            PodVolume::Claim(_) | PodVolume::Ephemeral(_) => has_claims = true,
            PodVolume::Disk(_) => {}
        }
    }
    if has_claims {
        Ok(PreFilter::Done)
    } else {
        Ok(PreFilter::Skip)
    }
}

/// The error of a volume source that is not supported.
pub(crate) fn in_tree(of: &str, field: &str) -> Status {
    Status::error(format!("{of}.{field} is not supported: use the CSI driver"))
}

/// Rejects nodes that cannot attach so many volumes.
pub(crate) fn filter(cycle: Cycle<'_>, node: &NodeState) -> Result<(), Status> {
    let added = added(cycle)?;
    let Some(limits) = cycle.snapshot.volumes.limits.get(&*node.name) else {
        return Ok(());
    };
    if added.is_empty() || limits.is_empty() {
        return Ok(());
    }
    let mut attached = Attached::new();
    for pod in &node.pods {
        attached.extend(present(cycle.snapshot, pod)?);
    }
    let new = by_driver(added.difference(&attached));
    let mut before = attached.clone();
    before.extend(unused(cycle.snapshot, &node.node.name));
    let present = by_driver(before.iter());
    for (driver, count) in new {
        let before = present.get(driver).copied().unwrap_or(0);
        if limits
            .get(driver)
            .is_some_and(|limit| before + count > *limit)
        {
            return Err(Status::unschedulable("node(s) exceed max volume count"));
        }
    }
    Ok(())
}

fn by_driver<'a>(all: impl Iterator<Item = &'a (String, String)>) -> BTreeMap<&'a str, i64> {
    let mut counts = BTreeMap::new();
    for (driver, _) in all {
        *counts.entry(driver.as_str()).or_default() += 1;
    }
    counts
}

/// The volumes of the incoming pod; each claim must exist.
fn added(cycle: Cycle<'_>) -> Result<Attached, Status> {
    let pod = cycle.pod;
    let mut all = Attached::new();
    for name in pod
        .volumes
        .iter()
        .filter_map(|volume| volume.claim(&pod.key.name))
    {
        let claim = cycle.snapshot.volumes.claim(&pod.key.namespace, &name);
        let claim = claim.ok_or_else(|| {
            let (namespace, reason) = (&pod.key.namespace, claim_not_found(&name));
            Status::unresolvable(format!("looking up PVC {namespace}/{name}: {reason}"))
        })?;
        all.extend(attached(cycle.snapshot, claim));
    }
    Ok(all)
}

/// The volumes of a pod on the node; claims that do not exist do not count.
fn present(snapshot: &Snapshot, pod: &Pod) -> Result<Attached, Status> {
    let mut all = Attached::new();
    for volume in &pod.volumes {
        let claim = volume.claim(&pod.key.name);
        let claim = claim.and_then(|name| snapshot.volumes.claim(&pod.key.namespace, &name));
        let Some(claim) = claim else {
            continue;
        };
        if matches!(volume, PodVolume::Ephemeral(_)) {
            claim.check_owner(pod).map_err(Status::error)?;
        }
        all.extend(attached(snapshot, claim));
    }
    Ok(all)
}

/// The volumes that are attached to a node, whether pods use them or not.
fn unused<'a>(
    snapshot: &'a Snapshot,
    node: &str,
) -> impl Iterator<Item = (String, String)> + use<'a> {
    let all = snapshot.volumes.attachments.get(node).into_iter();
    all.flat_map(BTreeMap::values).filter_map(|attachment| {
        let volume = snapshot.volumes.persistent.get(&attachment.volume)?;
        let (_, handle) = volume.csi.as_ref()?;
        Some((attachment.driver.clone(), handle.clone()))
    })
}

/// The driver and the volume of a claim; a volume that is not provisioned yet is its own.
fn attached(snapshot: &Snapshot, claim: &Claim) -> Option<(String, String)> {
    if let Some(volume) = snapshot.volumes.persistent.get(&claim.volume) {
        return volume.csi.clone();
    }
    let class = snapshot.volumes.class(claim)?;
    let pending = format!("{}/{}", claim.namespace, claim.name);
    Some((class.provisioner.clone(), pending))
}
