//! The nodes as columns: kube-scheduler's filters and its LeastAllocated score over them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use fastrand::Rng;
use k8s_openapi::api::core::v1::Node;

use crate::request::{Request, Resource};
use dormouse_cluster::quantity;

/// What a Node object offers to pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// Allocatable CPU and memory.
    pub allocatable: Resource,
    /// Allocatable number of pods.
    pub pods: i64,
    /// Whether the node's condition `Ready` is true.
    pub ready: bool,
    /// `spec.unschedulable`: the node is cordoned.
    pub unschedulable: bool,
    /// The node's labels.
    pub labels: BTreeMap<String, String>,
}

impl NodeInfo {
    /// Reads a Node object. A missing quantity counts as 0.
    pub fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let read = |name: &str, unit: fn(&_) -> Option<i64>| {
            allocatable.and_then(|all| all.get(name)).and_then(unit)
        };
        let conditions = status
            .and_then(|status| status.conditions.as_ref())
            .into_iter()
            .flatten();
        Self {
            allocatable: Resource {
                cpu_milli: read("cpu", quantity::milli_value).unwrap_or(0),
                memory: read("memory", quantity::value).unwrap_or(0),
            },
            pods: read("pods", quantity::value).unwrap_or(0),
            ready: conditions
                .into_iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            unschedulable: node
                .spec
                .as_ref()
                .and_then(|spec| spec.unschedulable)
                .unwrap_or(false),
            labels: node.metadata.labels.clone().unwrap_or_default(),
        }
    }
}

/// The index of a node in the columns; never reused for another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeIndex(usize);

/// The error of a pod that fits no node: the number of nodes that each filter rejected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FitError {
    /// All nodes.
    pub nodes: usize,
    /// Nodes that are not ready.
    pub not_ready: usize,
    /// Nodes that are cordoned.
    pub unschedulable: usize,
    /// Nodes that do not match the pod's node selector.
    pub selector: usize,
    /// Nodes with too many pods.
    pub pods: usize,
    /// Nodes with insufficient CPU.
    pub cpu: usize,
    /// Nodes with insufficient memory.
    pub memory: usize,
}

/// kube-scheduler's message, which tools parse.
impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filters = [
            (self.not_ready, "node(s) were not ready"),
            (self.unschedulable, "node(s) were unschedulable"),
            (
                self.selector,
                "node(s) didn't match Pod's node affinity/selector",
            ),
            (self.pods, "Too many pods"),
            (self.cpu, "Insufficient cpu"),
            (self.memory, "Insufficient memory"),
        ];
        write!(f, "0/{} nodes are available", self.nodes)?;
        let rejected = filters.iter().filter(|(count, _)| *count > 0);
        for (position, (count, reason)) in rejected.enumerate() {
            let separator = if position == 0 { ":" } else { "," };
            write!(f, "{separator} {count} {reason}")?;
        }
        f.write_str(".")
    }
}

/// All nodes, one column per property.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    indexes: HashMap<String, NodeIndex>,
    names: Vec<String>,
    /// `None` for a name that pods are bound to, but that has no Node object: it takes no pods.
    info: Vec<Option<NodeInfo>>,
    requested: Vec<Resource>,
    non_zero_requested: Vec<Resource>,
    pods: Vec<i64>,
}

impl Nodes {
    /// The index of a node; a new name is added without a Node object.
    pub fn index(&mut self, name: &str) -> NodeIndex {
        if let Some(index) = self.indexes.get(name) {
            return *index;
        }
        let index = NodeIndex(self.names.len());
        self.indexes.insert(name.to_owned(), index);
        self.names.push(name.to_owned());
        self.info.push(None);
        self.requested.push(Resource::default());
        self.non_zero_requested.push(Resource::default());
        self.pods.push(0);
        index
    }

    /// The node's name.
    pub fn name(&self, index: NodeIndex) -> &str {
        &self.names[index.0]
    }

    /// Updates a node, `None` when it was deleted; returns whether that changed it.
    pub fn update(&mut self, index: NodeIndex, info: Option<NodeInfo>) -> bool {
        let changed = self.info[index.0] != info;
        self.info[index.0] = info;
        changed
    }

    /// Adds the requests of a pod to a node.
    pub fn add_pod(&mut self, index: NodeIndex, request: &Request) {
        self.count(index, request, 1);
    }

    /// Subtracts the requests of a pod from a node.
    pub fn remove_pod(&mut self, index: NodeIndex, request: &Request) {
        self.count(index, request, -1);
    }

    fn count(&mut self, index: NodeIndex, request: &Request, sign: i64) {
        let add = |total: &mut Resource, resource: Resource| {
            total.cpu_milli += sign * resource.cpu_milli;
            total.memory += sign * resource.memory;
        };
        add(&mut self.requested[index.0], request.requested);
        add(
            &mut self.non_zero_requested[index.0],
            request.non_zero_requested,
        );
        self.pods[index.0] += sign;
    }

    /// Selects the node with the highest score among those that pass the filters; as in
    /// kube-scheduler, a random one of several with the same score.
    pub fn place(&self, request: &Request, random: &mut Rng) -> Result<NodeIndex, FitError> {
        let mut error = FitError::default();
        let mut best: Option<(i64, NodeIndex)> = None;
        let mut ties = 0;
        for (index, info) in self.info.iter().enumerate() {
            let Some(info) = info else { continue };
            error.nodes += 1;
            if !self.filter(index, info, request, &mut error) {
                continue;
            }
            let score = self.score(index, info, request);
            if best.is_none_or(|(highest, _)| score > highest) {
                (best, ties) = (Some((score, NodeIndex(index))), 1);
            } else if best.is_some_and(|(highest, _)| score == highest) {
                ties += 1;
                if random.usize(..ties) == 0 {
                    best = Some((score, NodeIndex(index)));
                }
            }
        }
        best.map(|(_, index)| index).ok_or(error)
    }

    /// Whether a pod passes all filters. Counts the first filter that rejects the node; all three
    /// resources are counted, as in kube-scheduler's NodeResourcesFit.
    fn filter(
        &self,
        index: usize,
        info: &NodeInfo,
        request: &Request,
        error: &mut FitError,
    ) -> bool {
        if !info.ready {
            error.not_ready += 1;
            return false;
        }
        if info.unschedulable {
            error.unschedulable += 1;
            return false;
        }
        if request
            .selector
            .iter()
            .any(|(name, value)| info.labels.get(name) != Some(value))
        {
            error.selector += 1;
            return false;
        }
        let (pod, allocatable, used) = (request.requested, info.allocatable, self.requested[index]);
        let pods = self.pods[index] + 1 > info.pods;
        let cpu = pod.cpu_milli > 0 && pod.cpu_milli > allocatable.cpu_milli - used.cpu_milli;
        let memory = pod.memory > 0 && pod.memory > allocatable.memory - used.memory;
        error.pods += usize::from(pods);
        error.cpu += usize::from(cpu);
        error.memory += usize::from(memory);
        !(pods || cpu || memory)
    }

    /// kube-scheduler's LeastAllocated score: the mean of the free percentages of CPU and memory.
    fn score(&self, index: usize, info: &NodeInfo, request: &Request) -> i64 {
        let (pod, used) = (request.non_zero_requested, self.non_zero_requested[index]);
        let resources = [
            (info.allocatable.cpu_milli, used.cpu_milli + pod.cpu_milli),
            (info.allocatable.memory, used.memory + pod.memory),
        ];
        let scored = resources.iter().filter(|(allocatable, _)| *allocatable > 0);
        let (sum, count) = scored.fold((0, 0), |(sum, count), (allocatable, requested)| {
            (sum + free_percent(*allocatable, *requested), count + 1)
        });
        if count == 0 { 0 } else { sum / count }
    }
}

/// The percentage of `allocatable` that `requested` leaves free, rounded down; 0 if it exceeds it.
fn free_percent(allocatable: i64, requested: i64) -> i64 {
    if requested > allocatable {
        return 0;
    }
    let percent = i128::from(allocatable - requested) * 100 / i128::from(allocatable);
    i64::try_from(percent).unwrap_or(0)
}

#[cfg(test)]
mod tests;
