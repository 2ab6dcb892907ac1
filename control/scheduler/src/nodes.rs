//! What nodes have and what is asked of them, as columns, and the choice of one: kube-scheduler's filters and score.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use k8s_openapi::api::core::v1::Node;

use crate::quantity;
use crate::random::Random;
use crate::request::{Amount, Request};

/// What a node has to give.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    /// CPU and memory for pods.
    pub amount: Amount,
    /// The most pods.
    pub pods: i64,
    /// Whether it takes pods.
    pub ready: bool,
    /// Whether its owner lets no new pods in.
    pub cordoned: bool,
    /// Labels that a pod may ask for.
    pub labels: BTreeMap<String, String>,
}

impl Capacity {
    /// What a Node object says. What it leaves out counts as none.
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
            amount: Amount {
                cpu_milli: read("cpu", quantity::thousandths).unwrap_or(0),
                memory: read("memory", quantity::units).unwrap_or(0),
            },
            pods: read("pods", quantity::units).unwrap_or(0),
            ready: conditions
                .into_iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            cordoned: node
                .spec
                .as_ref()
                .and_then(|spec| spec.unschedulable)
                .unwrap_or(false),
            labels: node.metadata.labels.clone().unwrap_or_default(),
        }
    }
}

/// One node's place in the columns; it keeps its meaning for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(usize);

/// Why no node takes a pod: how many nodes each filter refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfit {
    /// All nodes.
    pub nodes: usize,
    /// Nodes that are not ready.
    pub not_ready: usize,
    /// Nodes that let no new pods in.
    pub cordoned: usize,
    /// Nodes without a label that the pod asks for.
    pub selector: usize,
    /// Nodes with too many pods.
    pub pods: usize,
    /// Nodes with too little CPU left.
    pub cpu: usize,
    /// Nodes with too little memory left.
    pub memory: usize,
}

/// In kube-scheduler's words, which people and their tools know.
impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filters = [
            (self.not_ready, "node(s) were not ready"),
            (self.cordoned, "node(s) were unschedulable"),
            (
                self.selector,
                "node(s) didn't match Pod's node affinity/selector",
            ),
            (self.pods, "Too many pods"),
            (self.cpu, "Insufficient cpu"),
            (self.memory, "Insufficient memory"),
        ];
        write!(f, "0/{} nodes are available", self.nodes)?;
        let refused = filters.iter().filter(|(count, _)| *count > 0);
        for (position, (count, why)) in refused.enumerate() {
            write!(f, "{} {count} {why}", if position == 0 { ":" } else { "," })?;
        }
        f.write_str(".")
    }
}

/// All nodes.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    slots: HashMap<String, Slot>,
    names: Vec<String>,
    /// Without capacity, a node is known by its pods only: it takes no more.
    capacity: Vec<Option<Capacity>>,
    asked: Vec<Amount>,
    scored: Vec<Amount>,
    pods: Vec<i64>,
}

impl Nodes {
    /// The place of a node, which may not have been heard of before.
    pub fn slot(&mut self, name: &str) -> Slot {
        if let Some(slot) = self.slots.get(name) {
            return *slot;
        }
        let slot = Slot(self.names.len());
        self.slots.insert(name.to_owned(), slot);
        self.names.push(name.to_owned());
        self.capacity.push(None);
        self.asked.push(Amount::default());
        self.scored.push(Amount::default());
        self.pods.push(0);
        slot
    }

    /// The node's name.
    pub fn name(&self, slot: Slot) -> &str {
        &self.names[slot.0]
    }

    /// Notes what a node has, `None` when it is gone; returns whether that is news.
    pub fn set(&mut self, slot: Slot, capacity: Option<Capacity>) -> bool {
        let changed = self.capacity[slot.0] != capacity;
        self.capacity[slot.0] = capacity;
        changed
    }

    /// Counts a pod on a node.
    pub fn add(&mut self, slot: Slot, request: &Request) {
        self.count(slot, request, 1);
    }

    /// Counts a pod on a node no longer.
    pub fn subtract(&mut self, slot: Slot, request: &Request) {
        self.count(slot, request, -1);
    }

    fn count(&mut self, slot: Slot, request: &Request, sign: i64) {
        let add = |total: &mut Amount, amount: Amount| {
            total.cpu_milli += sign * amount.cpu_milli;
            total.memory += sign * amount.memory;
        };
        add(&mut self.asked[slot.0], request.asked);
        add(&mut self.scored[slot.0], request.scored);
        self.pods[slot.0] += sign;
    }

    /// Chooses the node with the highest score among those that fit; equals draw lots, as in kube-scheduler.
    pub fn place(&self, request: &Request, random: &mut Random) -> Result<Slot, Unfit> {
        let mut unfit = Unfit::default();
        let mut best: Option<(i64, Slot)> = None;
        let mut equals = 0;
        for (index, capacity) in self.capacity.iter().enumerate() {
            let Some(capacity) = capacity else { continue };
            unfit.nodes += 1;
            if !self.fits(index, capacity, request, &mut unfit) {
                continue;
            }
            let score = self.score(index, capacity, request);
            if best.is_none_or(|(highest, _)| score > highest) {
                (best, equals) = (Some((score, Slot(index))), 1);
            } else if best.is_some_and(|(highest, _)| score == highest) {
                equals += 1;
                if random.below(equals) == 0 {
                    best = Some((score, Slot(index)));
                }
            }
        }
        best.map(|(_, slot)| slot).ok_or(unfit)
    }

    /// Whether a pod fits; counts every filter of the first stage that refuses it.
    fn fits(
        &self,
        index: usize,
        capacity: &Capacity,
        request: &Request,
        unfit: &mut Unfit,
    ) -> bool {
        if !capacity.ready {
            unfit.not_ready += 1;
            return false;
        }
        if capacity.cordoned {
            unfit.cordoned += 1;
            return false;
        }
        if request
            .selector
            .iter()
            .any(|(name, value)| capacity.labels.get(name) != Some(value))
        {
            unfit.selector += 1;
            return false;
        }
        let (asked, used) = (request.asked, self.asked[index]);
        let pods = self.pods[index] + 1 > capacity.pods;
        let cpu =
            asked.cpu_milli > 0 && asked.cpu_milli > capacity.amount.cpu_milli - used.cpu_milli;
        let memory = asked.memory > 0 && asked.memory > capacity.amount.memory - used.memory;
        unfit.pods += usize::from(pods);
        unfit.cpu += usize::from(cpu);
        unfit.memory += usize::from(memory);
        !(pods || cpu || memory)
    }

    /// Least allocated: the mean, over CPU and memory, of the percentage that stays free.
    fn score(&self, index: usize, capacity: &Capacity, request: &Request) -> i64 {
        let used = self.scored[index];
        let resources = [
            (
                capacity.amount.cpu_milli,
                used.cpu_milli + request.scored.cpu_milli,
            ),
            (capacity.amount.memory, used.memory + request.scored.memory),
        ];
        let counted = resources.iter().filter(|(capacity, _)| *capacity > 0);
        let (sum, count) = counted.fold((0, 0), |(sum, count), (capacity, used)| {
            (sum + free_percent(*capacity, *used), count + 1)
        });
        if count == 0 { 0 } else { sum / count }
    }
}

/// The whole percentage that stays free.
fn free_percent(capacity: i64, used: i64) -> i64 {
    if used > capacity {
        return 0;
    }
    let percent = i128::from(capacity - used) * 100 / i128::from(capacity);
    i64::try_from(percent).unwrap_or(0)
}

#[cfg(test)]
mod tests;
