//! What a pod asks of a node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity;

/// What a container without a CPU request counts for when nodes are scored, thousandths of a CPU (kube-scheduler's).
pub const CPU_SCORED_DEFAULT_MILLI: i64 = 100;
/// What a container without a memory request counts for when nodes are scored, bytes (kube-scheduler's).
pub const MEMORY_SCORED_DEFAULT: i64 = 200 << 20;

/// An amount of the two resources that are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Thousandths of a CPU.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory: i64,
}

impl Amount {
    fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.max(other.cpu_milli),
            memory: self.memory.max(other.memory),
        }
    }
}

/// What a pod asks of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// What it asks for: this must fit.
    pub asked: Amount,
    /// The same, with defaults where it asks for nothing: nodes are scored by this.
    pub scored: Amount,
    /// Labels that the node must have.
    pub selector: BTreeMap<String, String>,
}

impl Request {
    /// What a pod asks for. Unreadable quantities count as absent: validation refuses them.
    pub fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let nothing = Amount::default();
        let default = Amount {
            cpu_milli: CPU_SCORED_DEFAULT_MILLI,
            memory: MEMORY_SCORED_DEFAULT,
        };
        Self {
            asked: total(spec, nothing),
            scored: total(spec, default),
            selector: spec.node_selector.clone().unwrap_or_default(),
        }
    }
}

/// The sum of the containers, or the largest init container: they run one after another. Init containers that stay
/// (`restartPolicy: Always`) count with the sum.
fn total(spec: &PodSpec, default: Amount) -> Amount {
    let init = spec.init_containers.iter().flatten();
    let mut running = Amount::default();
    let mut largest = Amount::default();
    for container in init {
        if container.restart_policy.as_deref() == Some("Always") {
            running = running.plus(of(container, default));
            largest = largest.max(running);
        } else {
            largest = largest.max(running.plus(of(container, default)));
        }
    }
    let sum = spec
        .containers
        .iter()
        .fold(running, |sum, container| sum.plus(of(container, default)));
    let overhead = spec
        .overhead
        .as_ref()
        .map_or(Amount::default(), |overhead| {
            amount(overhead, Amount::default())
        });
    sum.max(largest).plus(overhead)
}

fn of(container: &Container, default: Amount) -> Amount {
    let requests = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    requests.map_or(default, |requests| amount(requests, default))
}

fn amount(resources: &BTreeMap<String, Quantity>, default: Amount) -> Amount {
    let read = |name: &str, unit: fn(&Quantity) -> Option<i64>| resources.get(name).and_then(unit);
    Amount {
        cpu_milli: read("cpu", quantity::thousandths).unwrap_or(default.cpu_milli),
        memory: read("memory", quantity::units).unwrap_or(default.memory),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;

    use super::*;

    fn container(requests: &[(&str, &str)]) -> Container {
        let requests = requests
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Quantity((*value).to_owned())))
            .collect();
        let resources = ResourceRequirements {
            requests: Some(requests),
            ..Default::default()
        };
        Container {
            resources: Some(resources),
            ..Default::default()
        }
    }

    fn request(containers: Vec<Container>, init: Vec<Container>) -> Request {
        let spec = PodSpec {
            containers,
            init_containers: Some(init),
            ..PodSpec::default()
        };
        Request::of(&Pod {
            spec: Some(spec),
            ..Pod::default()
        })
    }

    #[test]
    fn what_is_not_asked_for_counts_only_for_the_score() {
        let request = request(
            vec![container(&[("cpu", "1")]), Container::default()],
            vec![],
        );
        assert_eq!(
            request.asked,
            Amount {
                cpu_milli: 1_000,
                memory: 0
            }
        );
        assert_eq!(
            request.scored,
            Amount {
                cpu_milli: 1_100,
                memory: 2 * MEMORY_SCORED_DEFAULT
            }
        );
    }

    #[test]
    fn init_containers_run_before_the_others_and_not_beside_them() {
        let request = request(
            vec![container(&[("cpu", "1"), ("memory", "1Ki")])],
            vec![
                container(&[("cpu", "3")]),
                container(&[("cpu", "2"), ("memory", "5Ki")]),
            ],
        );
        assert_eq!(
            request.asked,
            Amount {
                cpu_milli: 3_000,
                memory: 5 * 1_024
            }
        );
    }
}
