//! VolumeRestrictions: disks that cannot be attached twice, and claims that only one pod may use.

use std::collections::BTreeSet;

use crate::cycle::Counts;
use crate::node_state::NodeState;
use crate::plugins::{Cycle, CycleState, PreFilter};
use crate::pod::Pod;
use crate::status::Status;
use crate::volumes::{Disk, PodVolume};

const ONE_POD: &str = "ReadWriteOncePod";

/// The claims of the cycle's pod that only one pod may use, and the uses of them.
#[derive(Clone, Default)]
pub(crate) struct InUse {
    claims: BTreeSet<String>,
    uses: i64,
}

impl InUse {
    /// Takes the claims that are in use in any part; idle if nothing can conflict.
    pub(crate) fn is_idle(&mut self, pod: &Pod, counts: &Counts) -> bool {
        self.uses = i64::try_from(counts.claims_in_use.len()).unwrap_or(i64::MAX);
        self.uses == 0 && disks(pod).next().is_none()
    }

    /// Adds pods like `other`, or takes them away; kube-scheduler does not look at their namespace here.
    pub(crate) fn count(&mut self, other: &Pod, times: i64) {
        let used = other.volumes.iter().filter(
            |volume| matches!(volume, PodVolume::Claim(name) if self.claims.contains(name)),
        );
        self.uses += times * i64::try_from(used.count()).unwrap_or(i64::MAX);
    }
}

fn disks(pod: &Pod) -> impl Iterator<Item = &Disk> {
    pod.volumes.iter().filter_map(|volume| match volume {
        PodVolume::Disk(disk) => Some(disk),
        _ => None,
    })
}

/// Whether a disk of `pod` conflicts with one of `other`.
pub(crate) fn conflict(pod: &Pod, other: &Pod) -> bool {
    disks(pod).any(|disk| disks(other).any(|one| disk.conflicts(one)))
}

/// Notes the claims that are in use.
pub(crate) fn pre_filter(
    cycle: Cycle<'_>,
    state: &mut CycleState,
    counts: &mut Counts,
) -> Result<PreFilter, Status> {
    let pod = cycle.pod;
    let mut in_use = InUse::default();
    for volume in &pod.volumes {
        let PodVolume::Claim(name) = volume else {
            continue;
        };
        let claim = cycle.snapshot.volumes.claim(&pod.key.namespace, name);
        let claim = claim.ok_or_else(|| Status::unresolvable(claim_not_found(name)))?;
        let is_exclusive = claim.access_modes.iter().any(|mode| mode == ONE_POD);
        if is_exclusive && in_use.claims.insert(name.clone()) {
            let key = (pod.key.namespace.clone(), name.clone());
            if cycle.snapshot.is_claim_used(&key) {
                counts.claims_in_use.insert(name.clone());
            }
        }
    }
    state.restrictions = in_use;
    Ok(PreFilter::Done)
}

/// The text for a claim that does not exist.
pub(crate) fn claim_not_found(name: &str) -> String {
    format!("persistentvolumeclaim {name:?} not found")
}

/// Rejects nodes with a conflicting disk, and all nodes while a claim for one pod is in use.
pub(crate) fn filter(pod: &Pod, state: &CycleState, node: &NodeState) -> Result<(), Status> {
    if node.pods.iter().any(|other| conflict(pod, other)) {
        return Err(Status::unschedulable("node(s) had no available disk"));
    }
    if state.restrictions.uses > 0 {
        let reason = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
        return Err(Status::unschedulable(reason));
    }
    Ok(())
}
