//! What a decision looks at, and how single nodes are judged.

use std::borrow::Cow;
use std::ops::Range;

use dormouse_scheduler_decide::Pod;
use dormouse_scheduler_decide::Snapshot;
use dormouse_scheduler_decide::{Profile, facts::NodeView};

use crate::by_node::{ByNode, Level};
use crate::class::REJECTED;
use crate::demand::Demand;
use crate::kinds::Kinds;
use crate::nominated::Nominated;
use crate::number::{at, wide};
use crate::positions::Positions;
use crate::row::Row;
use crate::segment::{Place, Segment};
use crate::spread::{Host, Scores};

/// Nodes that pods keep a pod away from are listed if they are not more than this many times the nodes that are looked at.
const REPELLED_SHARE_MAX: u64 = 4;

/// What a search looks at, and how nodes are judged.
pub(crate) struct Lens<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) profile: &'a Profile,
    pub(crate) pod: &'a Pod,
    pub(crate) demand: Demand,
    pub(crate) kinds: &'a Kinds,
    pub(crate) rows: &'a [Row],
    /// The slots of all nodes in their order, and the position of each slot if there are several segments.
    pub(crate) order: &'a [u32],
    pub(crate) positions: &'a [u32],
    /// The number of nodes of a segment.
    pub(crate) segment_len: usize,
    pub(crate) segments: &'a [Segment],
    /// The scores that a node has by its kind, but for the spread of pods.
    pub(crate) bonus: Cow<'a, [f64]>,
    /// Nodes that pods keep the pod away from.
    pub(crate) repelling: Vec<&'a ByNode>,
    /// Pods that count on the nodes that they are nominated to. No pods keep the pod away from nodes then.
    pub(crate) nominated: Option<&'a Nominated>,
    /// The positions of both, where a part of the order is looked at.
    pub(crate) barred: Option<Positions>,
    /// Nodes with pods that count for the spread by node.
    pub(crate) spreading: Vec<&'a ByNode>,
    pub(crate) spread: Option<Scores<'a>>,
}

impl Lens<'_> {
    /// Whether a node is judged by itself, and not by its kind and amounts alone.
    pub(crate) fn is_apart(&self, slot: u32) -> bool {
        let mut spreading = self.spreading.iter();
        spreading.any(|pods| pods.contains(slot))
            || self.is_repelled(slot, self.rows[at(slot)].kind)
    }

    /// No more nodes than that are judged by themselves.
    pub(crate) fn apart_len_max(&self) -> u64 {
        let all = self.repelling.iter().chain(&self.spreading);
        let nominated = self.nominated.map_or(0, Nominated::len);
        all.map(|pods| wide(pods.len())).sum::<u64>() + wide(nominated)
    }

    /// The nodes that are judged by themselves, if they are those of one constraint.
    pub(crate) fn only_spread(&self) -> Option<&ByNode> {
        match self.spreading.as_slice() {
            [one] if self.repelling.is_empty() && self.nominated.is_none() => Some(one),
            _ => None,
        }
    }

    /// The nodes that are judged by themselves, but for those that pods keep the pod away from.
    pub(crate) fn spread_apart(&self) -> impl Iterator<Item = u32> {
        let all = self.spreading.iter().enumerate();
        all.flat_map(move |(index, pods)| {
            let before = &self.spreading[..index];
            let slots = pods.slots();
            slots.filter(|slot| before.iter().all(|pods| !pods.contains(*slot)))
        })
    }

    /// The nodes that pods keep the pod away from, or that pods are nominated to, and that are not in the spread.
    pub(crate) fn repelled(&self) -> impl Iterator<Item = u32> {
        let nominated = self.nominated.into_iter().flat_map(Nominated::slots);
        let nominated = nominated.filter(|slot| {
            let mut others = self.spreading.iter();
            others.all(|pods| !pods.contains(*slot))
        });
        let all = self.repelling.iter().enumerate();
        let repelled = all.flat_map(move |(index, pods)| {
            let before = &self.repelling[..index];
            let slots = pods.slots();
            slots.filter(move |slot| {
                let mut others = before.iter().chain(&self.spreading);
                others.all(|pods| !pods.contains(*slot))
                    && self.kinds.has_hostname(self.rows[at(*slot)].kind)
            })
        });
        repelled.chain(nominated)
    }

    /// Whether pods keep the pod away from a node.
    pub(crate) fn is_repelled(&self, slot: u32, kind: u32) -> bool {
        if let Some(barred) = &self.barred {
            return barred.contains(at(self.positions[at(slot)]));
        }
        let mut all = self.repelling.iter();
        self.kinds.has_hostname(kind) && all.any(|pods| pods.contains(slot))
            || self.is_reserved(slot)
    }

    /// Whether the pod does not fit on a node with those that are nominated to it.
    fn is_reserved(&self, slot: u32) -> bool {
        let Some(pods) = self.nominated.and_then(|all| all.on(slot)) else {
            return false;
        };
        let matters =
            |other: &&Pod| other.priority() >= self.pod.priority() && other.key() != self.pod.key();
        let others = pods.iter().map(AsRef::as_ref).filter(matters);
        let node = self.snapshot.view(slot);
        node.is_some_and(|node| !self.profile.fits_with(self.pod, node, others))
    }

    /// Whether pods keep the pod away from some nodes, of which a look at each is cheaper than one at so many nodes.
    pub(crate) fn has_few_repelled(&self, nodes_len: u64) -> bool {
        let len = self.apart_len_max();
        len > 0 && len / REPELLED_SHARE_MAX <= nodes_len
    }

    /// Notes the positions of the nodes that pods keep the pod away from.
    pub(crate) fn bar(&mut self) {
        let mut barred = Positions::none(self.order.len());
        for slot in self.repelling.iter().flat_map(|pods| pods.slots()) {
            if self.kinds.has_hostname(self.rows[at(slot)].kind) {
                barred.insert(at(self.positions[at(slot)]));
            }
        }
        for slot in self.nominated.into_iter().flat_map(Nominated::slots) {
            if self.is_reserved(slot) {
                barred.insert(at(self.positions[at(slot)]));
            }
        }
        self.barred = Some(barred);
    }

    /// The positions of a segment.
    pub(crate) fn positions_of(&self, segment: usize) -> Range<usize> {
        let first = segment * self.segment_len;
        first..(first + self.segment_len).min(self.order.len())
    }

    /// Whether a node can have the pod.
    pub(crate) fn is_feasible(&self, slot: u32) -> bool {
        let row = &self.rows[at(slot)];
        let fits = match row.place {
            Place::Nowhere => false,
            Place::Odd(_) => self.resources(slot).is_some(),
            Place::Group(..) => self.demand.fits(&row.state),
        };
        fits && self.bonus[at(row.kind)] != REJECTED && !self.is_repelled(slot, row.kind)
    }

    /// Whether a node with comparable amounts can have the pod, unless pods keep it away.
    pub(crate) fn fits_by_amounts(&self, slot: u32) -> bool {
        let row = &self.rows[at(slot)];
        matches!(row.place, Place::Group(..))
            && self.demand.fits(&row.state)
            && self.bonus[at(row.kind)] != REJECTED
    }

    fn resources(&self, slot: u32) -> Option<(i64, i64)> {
        let node: NodeView<'_> = self.snapshot.view(slot)?;
        self.profile.resources(self.snapshot, self.pod, node)
    }

    /// The scores of a kind, for nodes that are not apart.
    pub(crate) fn of_kind(&self, kind: u32) -> f64 {
        let spread = self.spread.as_ref();
        self.bonus[at(kind)] + spread.map_or(0.0, |spread| spread.of(self.kinds, kind, Host::Empty))
    }

    /// The scores of the nodes of a level, but for those of their amounts.
    pub(crate) fn of_level(&self, level: Level) -> f64 {
        let host = Host::With(level.pods);
        let spread = self.spread.as_ref();
        let spread = spread.map_or(0.0, |spread| spread.of(self.kinds, level.kind, host));
        self.bonus[at(level.kind)] + spread
    }

    /// The total of a feasible node.
    pub(crate) fn total(&self, slot: u32) -> Option<f64> {
        let row = &self.rows[at(slot)];
        let spread = self.spread.as_ref();
        let spread = spread.map_or(0.0, |spread| {
            spread.of(self.kinds, row.kind, Host::Slot(slot))
        });
        let of_resources = match row.place {
            Place::Odd(_) => {
                let (fit, balanced) = self.resources(slot)?;
                self.demand.weigh(fit, balanced)
            }
            _ => self.demand.score(&row.state, row.evenness),
        };
        Some(self.bonus[at(row.kind)] + spread + of_resources)
    }
}
