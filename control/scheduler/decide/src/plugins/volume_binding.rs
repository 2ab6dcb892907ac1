//! VolumeBinding: nodes that the pod's volumes reach, and volumes for claims that wait for the node.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::node::Node;
use crate::node_state::NodeState;
use crate::plugins::node_volume_limits::in_tree;
use crate::plugins::{Cycle, CycleState, PreFilter};
use crate::pod::Pod;
use crate::snapshot::Snapshot;
use crate::status::{Code, Status};
use crate::volumes::{Claim, PersistentVolume, PodVolume};

/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const NO_ROOM: &str = "node(s) did not have enough free storage";
const VOLUME_GONE: &str =
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// The claims of the cycle's pod.
#[derive(Clone, Default)]
pub(crate) struct PodClaims(Arc<Claims>);

#[derive(Default)]
struct Claims {
    bound: Vec<Claim>,
    /// Those that are bound once the node is known.
    delayed: Vec<Claim>,
}

/// Sorts the claims of the pod; skips pods without claims.
pub(crate) fn pre_filter(cycle: Cycle<'_>, state: &mut CycleState) -> Result<PreFilter, Status> {
    let claims = claims(cycle.snapshot, cycle.pod).map_err(Status::unresolvable)?;
    if claims.is_empty() {
        return Ok(PreFilter::Skip);
    }
    let mut all = Claims::default();
    let mut is_immediate = false;
    for claim in claims {
        if claim.is_bound() {
            all.bound.push(claim.clone());
        } else if is_delayed(cycle.snapshot, claim)? && claim.volume.is_empty() {
            all.delayed.push(claim.clone());
        } else {
            is_immediate = true;
        }
    }
    if is_immediate {
        let reason = "pod has unbound immediate PersistentVolumeClaims";
        return Err(Status::unresolvable(reason));
    }
    state.binding = PodClaims(Arc::new(all));
    Ok(PreFilter::Done)
}

/// The claims of a pod, all of which can be used.
fn claims<'a>(snapshot: &'a Snapshot, pod: &Pod) -> Result<Vec<&'a Claim>, String> {
    let mut all = Vec::new();
    for volume in &pod.volumes {
        let Some(name) = volume.claim(&pod.key.name) else {
            continue;
        };
        let is_ephemeral = matches!(volume, PodVolume::Ephemeral(_));
        let Some(claim) = snapshot.volumes.claim(&pod.key.namespace, &name) else {
            let of_controller = "waiting for ephemeral volume controller to create the";
            return Err(if is_ephemeral {
                format!("{of_controller} persistentvolumeclaim {name:?}")
            } else {
                format!("persistentvolumeclaim {name:?} not found")
            });
        };
        if claim.is_lost {
            let volume = &claim.volume;
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
        if claim.is_terminating {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if is_ephemeral {
            claim.check_owner(pod)?;
        }
        all.push(claim);
    }
    Ok(all)
}

fn is_delayed(snapshot: &Snapshot, claim: &Claim) -> Result<bool, Status> {
    let Some(class) = snapshot.volumes.class(claim) else {
        return Ok(false);
    };
    if class.binding_mode.is_none() {
        let name = &claim.class;
        let reason = format!("VolumeBindingMode not set for StorageClass {name:?}");
        return Err(Status::error(reason));
    }
    Ok(class.is_delayed())
}

/// Rejects nodes that a bound volume does not reach, or where a claim finds no volume and none is provisioned.
pub(crate) fn filter(cycle: Cycle<'_>, state: &CycleState, node: &NodeState) -> Result<(), Status> {
    let claims = &state.binding.0;
    let bound = bound_conflict(cycle.snapshot, &claims.bound, &node.node)?;
    let delayed = delayed_conflict(cycle.snapshot, &claims.delayed, &node.node)?;
    // The order of kube-scheduler: a volume that is gone is named last.
    let all = match bound {
        Some(VOLUME_GONE) => [delayed, bound],
        _ => [bound, delayed],
    };
    let reasons: Vec<_> = all.into_iter().flatten().map(str::to_owned).collect();
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Status {
        plugin: None,
        code: Code::UnschedulableAndUnresolvable,
        reasons,
    })
}

/// The first bound volume that does not exist, or does not reach the node.
fn bound_conflict(
    snapshot: &Snapshot,
    bound: &[Claim],
    node: &Node,
) -> Result<Option<&'static str>, Status> {
    for claim in bound {
        let Some(volume) = snapshot.volumes.persistent.get(&claim.volume) else {
            return Ok(Some(VOLUME_GONE));
        };
        if let Some(field) = volume.in_tree {
            return Err(in_tree(
                &format!("persistentvolume {} spec", volume.name),
                field,
            ));
        }
        if !volume.reaches(&node.labels) {
            return Ok(Some(NODE_CONFLICT));
        }
    }
    Ok(None)
}

/// Why a claim neither finds a volume that reaches the node, nor can be provisioned there.
fn delayed_conflict(
    snapshot: &Snapshot,
    delayed: &[Claim],
    node: &Node,
) -> Result<Option<&'static str>, Status> {
    let is_elsewhere = |claim: &Claim| {
        let on = claim.selected_node.as_ref();
        on.is_some_and(|on| **on != *node.name)
    };
    if delayed.iter().any(is_elsewhere) {
        return Ok(Some(NO_VOLUME));
    }
    let mut to_provision: Vec<&Claim> = Vec::new();
    let mut to_match: Vec<&Claim> = Vec::new();
    for claim in delayed {
        if claim.selected_node.is_some() {
            to_provision.push(claim);
        } else {
            to_match.push(claim);
        }
    }
    to_match.sort_by_key(|claim| claim.size);
    let mut taken = BTreeSet::new();
    for claim in to_match {
        match matching(snapshot, claim, node, &taken)? {
            Some(volume) => {
                taken.insert(volume.name.clone());
            }
            None => to_provision.push(claim),
        }
    }
    for claim in to_provision {
        let conflict = provision_conflict(snapshot, claim, node)?;
        if conflict.is_some() {
            return Ok(conflict);
        }
    }
    Ok(None)
}

/// The volume that is reserved for the claim, else the smallest one that fits.
fn matching<'a>(
    snapshot: &'a Snapshot,
    claim: &Claim,
    node: &Node,
    taken: &BTreeSet<String>,
) -> Result<Option<&'a PersistentVolume>, Status> {
    let selector = claim.selector.as_ref().map(Result::as_ref).transpose();
    let selector = selector.map_err(|error| {
        let of = format!("{}/{}", claim.namespace, claim.name);
        let what = "error creating internal label selector for claim";
        Status::error(format!("{what}: {of}: {error}"))
    })?;
    let of_class = snapshot.volumes.persistent.values();
    let of_class = of_class.filter(|volume| volume.class == claim.class);
    let mut smallest: Option<&PersistentVolume> = None;
    for volume in of_class.filter(|volume| !taken.contains(&volume.name) && volume.suits(claim)) {
        let reaches = volume.reaches(&node.labels);
        if volume.is_reserved_for(claim) {
            return Ok(reaches.then_some(volume));
        }
        let is_selected = selector.is_none_or(|selector| selector.matches(&volume.labels));
        let is_smaller = smallest.is_none_or(|best| volume.capacity() < best.capacity());
        if reaches && is_selected && volume.is_open_to(claim) && is_smaller {
            smallest = Some(volume);
        }
    }
    Ok(smallest)
}

/// Why a volume cannot be provisioned for the claim.
fn provision_conflict(
    snapshot: &Snapshot,
    claim: &Claim,
    node: &Node,
) -> Result<Option<&'static str>, Status> {
    if claim.class.is_empty() {
        let of = format!("{}/{}", claim.namespace, claim.name);
        return Err(Status::error(format!("no class for claim {of:?}")));
    }
    let class = snapshot.volumes.class(claim).ok_or_else(|| {
        let name = &claim.class;
        Status::error(format!("failed to find storage class {name:?}"))
    })?;
    let is_dynamic = !class.provisioner.is_empty() && class.provisioner != NO_PROVISIONER;
    if !is_dynamic || !class.allows(&node.labels) {
        return Ok(Some(NO_VOLUME));
    }
    let volume = (claim.class.as_str(), claim.size);
    let room = &snapshot.volumes;
    let has_room = claim.size.is_zero() || room.has_room(&class.provisioner, volume, &node.labels);
    Ok((!has_room).then_some(NO_ROOM))
}

#[cfg(test)]
mod tests;
