//! Taints of nodes, and the tolerations of pods.

use k8s_openapi::api::core::v1::{Taint as ApiTaint, Toleration as ApiToleration};

/// The taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";
const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Taint {
    key: String,
    value: String,
    effect: String,
}

/// What a pod tolerates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Toleration {
    key: String,
    value: String,
    effect: String,
    operator: String,
    /// Seconds for which a taint is tolerated on a node; has no influence on where the pod goes.
    seconds: Option<i64>,
}

impl Taint {
    pub(crate) fn parse(taint: &ApiTaint) -> Self {
        Self {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: taint.effect.clone(),
        }
    }

    fn unschedulable() -> Self {
        Self {
            key: UNSCHEDULABLE.to_owned(),
            value: String::new(),
            effect: NO_SCHEDULE.to_owned(),
        }
    }
}

impl Toleration {
    pub(crate) fn parse(toleration: &ApiToleration) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            key: text(&toleration.key),
            value: text(&toleration.value),
            effect: text(&toleration.effect),
            operator: text(&toleration.operator),
            seconds: toleration.toleration_seconds,
        }
    }

    /// `Lt` and `Gt` tolerate nothing: their feature is off.
    fn tolerates(&self, taint: &Taint) -> bool {
        let by_effect = self.effect.is_empty() || self.effect == taint.effect;
        let by_key = self.key.is_empty() || self.key == taint.key;
        let by_value = match self.operator.as_str() {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            _ => false,
        };
        by_effect && by_key && by_value
    }
}

fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|one| one.tolerates(taint))
}

/// Whether the pod tolerates all taints that keep pods away.
pub(crate) fn admits(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    let hard = taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), NO_SCHEDULE | NO_EXECUTE));
    hard.into_iter().all(|taint| tolerated(tolerations, taint))
}

/// Whether the pod tolerates a cordoned node.
pub(crate) fn admits_cordoned(tolerations: &[Toleration]) -> bool {
    tolerated(tolerations, &Taint::unschedulable())
}

/// The number of taints that the pod would rather avoid.
pub(crate) fn unwanted(taints: &[Taint], tolerations: &[Toleration]) -> i64 {
    let soft = taints.iter().filter(|one| one.effect == PREFER_NO_SCHEDULE);
    let unwanted = soft.filter(|taint| !tolerated(tolerations, taint)).count();
    i64::try_from(unwanted).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(effect: &str) -> Taint {
        Taint {
            key: "k".to_owned(),
            value: "v".to_owned(),
            effect: effect.to_owned(),
        }
    }

    fn toleration(key: &str, value: &str, effect: &str, operator: &str) -> Toleration {
        Toleration {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: effect.to_owned(),
            operator: operator.to_owned(),
            seconds: None,
        }
    }

    #[test]
    fn forms_of_tolerations() {
        let taints = [taint(NO_SCHEDULE)];
        let admitted = |one| admits(&taints, &[one]);
        assert!(admitted(toleration("k", "v", "", "")));
        assert!(admitted(toleration("k", "v", NO_SCHEDULE, "Equal")));
        assert!(admitted(toleration("", "", "", "Exists")));
        assert!(!admitted(toleration("k", "w", "", "Equal")));
        assert!(!admitted(toleration("k", "v", NO_EXECUTE, "Equal")));
        assert!(!admitted(toleration("k", "0", "", "Gt")));
    }

    #[test]
    fn soft_taints_are_counted_and_admit_all() {
        let taints = [taint(PREFER_NO_SCHEDULE), taint(NO_SCHEDULE)];
        assert_eq!(unwanted(&taints, &[]), 1);
        assert!(admits(&taints[..1], &[]) && !admits(&taints, &[]));
        assert_eq!(
            unwanted(&taints, &[toleration("k", "v", NO_SCHEDULE, "")]),
            1
        );
    }
}
