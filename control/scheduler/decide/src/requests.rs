//! The resource requests of a pod: containers, init containers and sidecars, overhead, pod-level requests, and resizes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, Pod as ApiPod, PodSpec, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::Malformed;
use crate::amount::{Amount, Amounts, add, amounts, raise};
use crate::resources::{CPU, MEMORY, Resources};

/// CPU of a container without a CPU request in scores, thousandths.
const DEFAULT_CPU_MILLI: i64 = 100;
/// Memory of a container without a memory request in scores, bytes.
const DEFAULT_MEMORY: i64 = 200 << 20;

/// The requests of a pod, as each reader counts them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requests {
    /// For the filter: by the specification alone.
    pub(crate) fit: Resources,
    /// On a node, with resizes under way.
    pub(crate) bound: Resources,
    /// On a node, in scores that count a minimum for each container.
    pub(crate) bound_non_zero: NonZero,
    /// With resizes under way, exact.
    pub(crate) actual: Amounts,
    /// For the score of NodeResourcesFit: without pod-level requests, with a minimum for each container.
    pub(crate) scored: Amounts,
    /// Of those for scores, CPU and memory.
    pub(crate) plain: Plain,
}

/// CPU and memory that are requested in scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Plain {
    /// NodeResourcesFit.
    pub(crate) scored: NonZero,
    /// NodeResourcesBalancedAllocation.
    pub(crate) balanced: NonZero,
}

/// Requests with a minimum for each container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NonZero {
    pub(crate) cpu_milli: i64,
    pub(crate) memory: i64,
}

/// What a running container or pod has, and what its node has reserved for it.
struct InForce {
    actuated: Amounts,
    allocated: Amounts,
}

struct Source {
    spec: Amounts,
    in_force: Option<InForce>,
    is_sidecar: bool,
}

/// A pod's parts that request resources.
struct Sources {
    containers: Vec<Source>,
    init_containers: Vec<Source>,
    pod: Option<Source>,
    overhead: Amounts,
    /// The node has refused the resize: what is specified does not count.
    is_infeasible: bool,
}

#[derive(Clone, Copy)]
struct Options<'a> {
    resizes: bool,
    pod_level: bool,
    defaults: Option<&'a Amounts>,
}

impl Requests {
    pub(crate) fn parse(pod: &ApiPod) -> Result<Self, Malformed> {
        let nothing = (PodSpec::default(), PodStatus::default());
        let spec = pod.spec.as_ref().unwrap_or(&nothing.0);
        let status = pod.status.as_ref().unwrap_or(&nothing.1);
        let sources = Sources::parse(spec, status)?;
        Ok(sources.requests())
    }

    /// The request for `resource` in the score of NodeResourcesFit.
    pub(crate) fn scored(&self, resource: &str) -> i64 {
        in_units(&self.scored, resource)
    }

    /// The request for `resource`, with resizes under way.
    pub(crate) fn actual(&self, resource: &str) -> i64 {
        in_units(&self.actual, resource)
    }
}

fn in_units(amounts: &Amounts, resource: &str) -> i64 {
    let amount = amounts.get(resource).copied().unwrap_or(Amount::ZERO);
    if resource == CPU {
        amount.milli_value()
    } else {
        amount.value()
    }
}

impl Sources {
    fn parse(spec: &PodSpec, status: &PodStatus) -> Result<Self, Malformed> {
        let init = spec.init_containers.as_deref().unwrap_or_default();
        let pending = status.conditions.iter().flatten();
        let mut pending = pending.filter(|one| one.type_ == "PodResizePending");
        Ok(Self {
            containers: containers("spec.containers", &spec.containers, status)?,
            init_containers: containers("spec.initContainers", init, status)?,
            pod: pod_level(spec, status)?,
            overhead: amounts("spec.overhead", spec.overhead.as_ref())?,
            is_infeasible: pending
                .next()
                .is_some_and(|one| one.reason.as_deref() == Some("Infeasible")),
        })
    }

    fn requests(&self) -> Requests {
        let options = |resizes, pod_level, defaults| Options {
            resizes,
            pod_level,
            defaults,
        };
        let default = Amounts::from([
            (CPU.to_owned(), Amount::milli(DEFAULT_CPU_MILLI)),
            (MEMORY.to_owned(), Amount::whole(DEFAULT_MEMORY)),
        ]);
        let actual = self.total(options(true, true, None));
        let mut missing = default.clone();
        if self.pod.is_some() {
            missing.retain(|name, _| !actual.contains_key(name));
        }
        let non_zero = self.total(options(true, true, Some(&missing)));
        let scored = self.total(options(false, false, Some(&default)));
        let plain = |amounts: &Amounts| NonZero {
            cpu_milli: in_units(amounts, CPU),
            memory: in_units(amounts, MEMORY),
        };
        Requests {
            fit: Resources::positive(&self.total(options(false, true, None))),
            bound: Resources::total(&actual),
            bound_non_zero: plain(&non_zero),
            plain: Plain {
                scored: plain(&scored),
                balanced: plain(&actual),
            },
            actual,
            scored,
        }
    }

    fn total(&self, options: Options<'_>) -> Amounts {
        let mut sum = self.of_containers(options);
        if let Some(pod) = self.pod.as_ref().filter(|_| options.pod_level) {
            let effective = self.effective(pod, true, options.resizes);
            for name in pod.spec.keys() {
                let amount = effective.get(name).copied().unwrap_or(Amount::ZERO);
                sum.insert(name.clone(), amount);
            }
        }
        add(&mut sum, &self.overhead);
        sum
    }

    /// The larger of the sum of what runs at the same time, and the peak of the init containers.
    fn of_containers(&self, options: Options<'_>) -> Amounts {
        let mut sum = Amounts::new();
        for container in &self.containers {
            add(&mut sum, &self.of_container(container, true, options));
        }
        let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
        for container in &self.init_containers {
            let mut one = self.of_container(container, container.is_sidecar, options);
            if container.is_sidecar {
                add(&mut sum, &one);
                add(&mut sidecars, &one);
                one.clone_from(&sidecars);
            } else {
                add(&mut one, &sidecars);
            }
            raise(&mut peak, &one);
        }
        raise(&mut sum, &peak);
        sum
    }

    /// The requests of a container; only one that keeps running can be resized.
    fn of_container(&self, source: &Source, runs: bool, options: Options<'_>) -> Amounts {
        let mut requests = self.effective(source, runs, options.resizes);
        for (name, amount) in options.defaults.into_iter().flatten() {
            requests.entry(name.clone()).or_insert(*amount);
        }
        requests
    }

    fn effective(&self, source: &Source, runs: bool, resizes: bool) -> Amounts {
        let in_force = source.in_force.as_ref().filter(|_| runs && resizes);
        let Some(in_force) = in_force else {
            return source.spec.clone();
        };
        let mut largest = in_force.actuated.clone();
        raise(&mut largest, &in_force.allocated);
        if !self.is_infeasible {
            raise(&mut largest, &source.spec);
        }
        largest
    }
}

fn containers(
    field: &str,
    all: &[Container],
    status: &PodStatus,
) -> Result<Vec<Source>, Malformed> {
    let parsed = all.iter().enumerate().map(|(index, container)| {
        let field = format!("{field}[{index}].resources.requests");
        let requests = container.resources.as_ref();
        let requests = requests.and_then(|resources| resources.requests.as_ref());
        Ok(Source {
            spec: amounts(&field, requests)?,
            in_force: in_force(&container.name, status)?,
            is_sidecar: container.restart_policy.as_deref() == Some("Always"),
        })
    });
    parsed.collect()
}

/// What the status says of a container, if it says what resources it has.
fn in_force(name: &str, status: &PodStatus) -> Result<Option<InForce>, Malformed> {
    let running = status.container_statuses.iter().flatten();
    let mut all = running.chain(status.init_container_statuses.iter().flatten());
    let Some(of) = all.rfind(|one| one.name == name) else {
        return Ok(None);
    };
    let Some(resources) = &of.resources else {
        return Ok(None);
    };
    let field = format!("status.containerStatuses[{name}]");
    in_force_of(&field, resources, of.allocated_resources.as_ref()).map(Some)
}

fn in_force_of(
    field: &str,
    resources: &ResourceRequirements,
    allocated: Option<&BTreeMap<String, Quantity>>,
) -> Result<InForce, Malformed> {
    Ok(InForce {
        actuated: amounts(
            &format!("{field}.resources.requests"),
            resources.requests.as_ref(),
        )?,
        allocated: amounts(&format!("{field}.allocatedResources"), allocated)?,
    })
}

/// The pod-level requests of resources that can be requested so, if there are any.
fn pod_level(spec: &PodSpec, status: &PodStatus) -> Result<Option<Source>, Malformed> {
    let requests = spec.resources.as_ref();
    let requests = requests.and_then(|resources| resources.requests.as_ref());
    let mut requests = amounts("spec.resources.requests", requests)?;
    requests
        .retain(|name, _| matches!(name.as_str(), CPU | MEMORY) || name.starts_with("hugepages-"));
    if requests.is_empty() {
        return Ok(None);
    }
    let allocated = status.allocated_resources.as_ref();
    let in_force = status.resources.as_ref();
    let in_force = in_force.map(|resources| in_force_of("status", resources, allocated));
    Ok(Some(Source {
        spec: requests,
        in_force: in_force.transpose()?,
        is_sidecar: false,
    }))
}

#[cfg(test)]
mod tests;
