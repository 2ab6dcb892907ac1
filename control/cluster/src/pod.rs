//! What objects of pods say: conditions and the reasons in them, the node, the end.

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// The condition of pods that have a node.
const SCHEDULED: &str = "PodScheduled";

/// Why a condition does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Because {
    /// In CamelCase.
    pub reason: String,
    /// The details, for users.
    pub message: String,
}

/// Sets a condition: it holds, or does not for a reason. Its time is that of the last change of its value.
pub fn set_condition(
    conditions: &mut Vec<PodCondition>,
    type_: &str,
    holds: bool,
    because: Option<Because>,
    now: Timestamp,
) {
    let value = if holds { "True" } else { "False" };
    let found = conditions
        .iter()
        .position(|condition| condition.type_ == type_);
    let position = found.unwrap_or_else(|| {
        conditions.push(PodCondition {
            type_: type_.to_owned(),
            ..PodCondition::default()
        });
        conditions.len() - 1
    });
    let condition = &mut conditions[position];
    if condition.status != value {
        value.clone_into(&mut condition.status);
        condition.last_transition_time = Some(Time(now));
    }
    (condition.reason, condition.message) = because
        .map(|because| (because.reason, because.message))
        .unzip();
}

/// Records that a pod has no node, and why; returns whether that is new.
pub fn set_unscheduled(pod: &mut Pod, reason: &str, message: &str, now: Timestamp) -> bool {
    let because = Because {
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    if waits_because(pod).as_ref() == Some(&because) {
        return false;
    }
    let status = pod.status.get_or_insert_default();
    let conditions = status.conditions.get_or_insert_default();
    set_condition(conditions, SCHEDULED, false, Some(because), now);
    true
}

/// Records that a pod has a node, if it was recorded that it had none.
pub fn set_scheduled(pod: &mut Pod, now: Timestamp) {
    if let Some(conditions) = pod
        .status
        .as_mut()
        .and_then(|status| status.conditions.as_mut())
        && conditions
            .iter()
            .any(|condition| condition.type_ == SCHEDULED)
    {
        set_condition(conditions, SCHEDULED, true, None, now);
    }
}

/// Records the node to which a pod is nominated, none by an empty name; returns whether that is new.
pub fn set_nomination(pod: &mut Pod, node: &str) -> bool {
    let written = pod.status.as_ref();
    let written = written.and_then(|status| status.nominated_node_name.as_deref());
    if written.unwrap_or_default() == node {
        return false;
    }
    let node = Some(node.to_owned()).filter(|node| !node.is_empty());
    pod.status.get_or_insert_default().nominated_node_name = node;
    true
}

/// Whether a pod uses the network of its node.
pub fn has_host_network(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.host_network).unwrap_or(false)
}

/// The node to which a pod is bound.
pub fn node_of(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref()?.node_name.as_deref();
    node.filter(|node| !node.is_empty())
}

/// Whether a pod of this status has ended: its phase is Succeeded or Failed.
pub fn has_ended(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Why a pod is not ready, as the scheduler or its node reported.
pub fn waits_because(pod: &Pod) -> Option<Because> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let failed = |type_: &str| {
        let mut all = conditions.iter();
        let condition = all.find(|one| one.type_ == type_ && one.status == "False")?;
        Some(Because {
            reason: condition.reason.clone()?,
            message: condition.message.clone().unwrap_or_default(),
        })
    };
    failed(SCHEDULED).or_else(|| failed("Ready"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_condition_is_that_of_the_last_change_of_its_value() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut pod = Pod::default();
        assert!(set_unscheduled(&mut pod, "Unschedulable", "no node", at(1)));
        assert!(!set_unscheduled(
            &mut pod,
            "Unschedulable",
            "no node",
            at(2)
        ));
        assert!(set_unscheduled(&mut pod, "Unschedulable", "too few", at(3)));
        let because = waits_because(&pod).unwrap();
        assert_eq!(because.message, "too few");
        let time = |pod: &Pod| {
            let condition = pod.status.as_ref().unwrap().conditions.as_ref().unwrap()[0].clone();
            condition.last_transition_time.unwrap().0
        };
        assert_eq!(time(&pod), at(1));
        set_scheduled(&mut pod, at(4));
        assert_eq!((waits_because(&pod), time(&pod)), (None, at(4)));
    }

    #[test]
    fn a_nomination_is_written_once_and_removed_by_an_empty_name() {
        let mut pod = Pod::default();
        assert!(!set_nomination(&mut pod, ""));
        assert!(set_nomination(&mut pod, "n1"));
        assert!(!set_nomination(&mut pod, "n1"));
        assert!(set_nomination(&mut pod, ""));
        assert_eq!(pod.status.unwrap().nominated_node_name, None);
    }

    #[test]
    fn a_pod_that_had_a_node_from_its_creation_gets_no_condition() {
        let mut pod = Pod::default();
        set_scheduled(&mut pod, Timestamp::UNIX_EPOCH);
        assert_eq!(pod.status, None);
    }
}
