//! The resource requests of a pod, and its node selector.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use dormouse_cluster::quantity;

/// CPU of a container without a CPU request in the score, thousandths of a CPU; as in kube-scheduler.
pub const DEFAULT_CPU_REQUEST_MILLI: i64 = 100;
/// Memory of a container without a memory request in the score, bytes; as in kube-scheduler.
pub const DEFAULT_MEMORY_REQUEST: i64 = 200 << 20;

/// An amount of CPU and memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resource {
    /// Thousandths of a CPU.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory: i64,
}

impl Resource {
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

/// The requests of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The requests that the filter compares with the node's allocatable resources.
    pub requested: Resource,
    /// The requests for the score, with defaults for containers without a request.
    pub non_zero_requested: Resource,
    /// The node selector: labels that the node must have.
    pub selector: BTreeMap<String, String>,
}

impl Request {
    /// The requests of a pod. A malformed quantity counts as absent: it does not pass validation.
    pub fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let nothing = Resource::default();
        let default = Resource {
            cpu_milli: DEFAULT_CPU_REQUEST_MILLI,
            memory: DEFAULT_MEMORY_REQUEST,
        };
        Self {
            requested: total(spec, nothing),
            non_zero_requested: total(spec, default),
            selector: spec.node_selector.clone().unwrap_or_default(),
        }
    }
}

/// The larger of the sum of the containers and the largest init container, which run one after another. Restartable
/// init containers (sidecars, `restartPolicy: Always`) count in the sum. The pod's overhead is added.
fn total(spec: &PodSpec, default: Resource) -> Resource {
    let init = spec.init_containers.iter().flatten();
    let mut running = Resource::default();
    let mut largest = Resource::default();
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
        .map_or(Resource::default(), |overhead| {
            amount(overhead, Resource::default())
        });
    sum.max(largest).plus(overhead)
}

fn of(container: &Container, default: Resource) -> Resource {
    let requests = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    requests.map_or(default, |requests| amount(requests, default))
}

fn amount(resources: &BTreeMap<String, Quantity>, default: Resource) -> Resource {
    let read = |name: &str, unit: fn(&Quantity) -> Option<i64>| resources.get(name).and_then(unit);
    Resource {
        cpu_milli: read("cpu", quantity::milli_value).unwrap_or(default.cpu_milli),
        memory: read("memory", quantity::value).unwrap_or(default.memory),
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
    fn a_container_without_a_request_counts_only_in_the_score() {
        let request = request(
            vec![container(&[("cpu", "1")]), Container::default()],
            vec![],
        );
        assert_eq!(
            request.requested,
            Resource {
                cpu_milli: 1_000,
                memory: 0
            }
        );
        assert_eq!(
            request.non_zero_requested,
            Resource {
                cpu_milli: 1_100,
                memory: 2 * DEFAULT_MEMORY_REQUEST
            }
        );
    }

    #[test]
    fn init_containers_are_not_added_to_the_containers() {
        let request = request(
            vec![container(&[("cpu", "1"), ("memory", "1Ki")])],
            vec![
                container(&[("cpu", "3")]),
                container(&[("cpu", "2"), ("memory", "5Ki")]),
            ],
        );
        assert_eq!(
            request.requested,
            Resource {
                cpu_milli: 3_000,
                memory: 5 * 1_024
            }
        );
    }
}
