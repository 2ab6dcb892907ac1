//! Decisions by the index.

use std::borrow::Cow;

use dormouse_scheduler_decide::Pod;

use super::Engine;
use crate::class::{Class, REJECTED};
use crate::demand::Demand;
use crate::failures::Key;
use crate::lens::Lens;
use crate::search::Search;
use crate::spread::{self, Scores};
use crate::state::Amounts;
use crate::survey::Survey;
use crate::window::{Around, Window};

/// What the index found.
pub(super) enum Found {
    /// The slot of one of the best nodes.
    Node(u32),
    /// The truth is to be asked: no node is feasible, or the index does not hold what the class needs.
    Nothing { is_special: bool },
}

impl Engine {
    /// Looks for one of the best nodes.
    pub(super) fn find(&mut self, (profile, rules, request): Key, pod: &Pod) -> Found {
        let mut rng = self.rng.fork();
        let special = Found::Nothing { is_special: true };
        let amounts = Amounts::of(&request);
        let is_known = self.prepare(profile, rules, pod).is_some();
        let (scheduler, weights) = &self.profiles[profile];
        let (Some(weights), Some(amounts), true) = (weights, amounts, is_known) else {
            return special;
        };
        let Some(class) = self.classes.get(&(rules, profile)) else {
            return special;
        };
        if !self.holds(class, pod) {
            return special;
        }
        if self
            .failures
            .get(&(profile, rules, request), &self.cluster)
            .is_some()
        {
            return Found::Nothing { is_special: false };
        }
        let nodes_len = self.cluster.nodes_len();
        let start = scheduler.start();
        let limit = scheduler.limit(nodes_len);
        let lens = Lens {
            snapshot: &self.cluster,
            profile: scheduler.profile(),
            pod,
            demand: Demand::new(amounts, weights),
            kinds: &self.index.kinds,
            rows: &self.index.rows,
            order: self.cluster.slot_order(),
            positions: &self.index.positions,
            segment_len: self.index.segment_len.unwrap_or(nodes_len),
            segments: &self.index.segments,
            bonus: Cow::Borrowed(&class.bonus),
            repelling: Vec::new(),
            nominated: self
                .index
                .nominated
                .matter_to(pod.priority())
                .then_some(&self.index.nominated),
            barred: None,
            spreading: Vec::new(),
            spread: None,
        };
        let around = Around {
            start,
            limit: u64::try_from(limit).unwrap_or(u64::MAX),
        };
        let (lens, window) = self.look(lens, class, weights, around);
        let mut search = Search::new(&lens, &window.pieces);
        search.run();
        let slot = search.draw(&mut rng);
        self.looked_at += search.looked_at;
        match slot {
            Some(slot) => {
                let judged = window.judged + self.judged_before(pod, start, window.judged);
                let next = (start + judged) % nodes_len;
                self.profiles[profile].0.set_start(next);
                Found::Node(slot)
            }
            None => Found::Nothing { is_special: false },
        }
    }

    /// Whether the index holds all that the class needs.
    fn holds(&self, class: &Class, pod: &Pod) -> bool {
        let counters = &self.index.counters;
        let by_name = || {
            let mut all = class.repelled_by.iter();
            all.any(|id| counters.get(*id).census.key() == Some(crate::class::HOSTNAME))
        };
        !class.is_special
            && (!self.index.nominated.matter_to(pod.priority()) || self.is_alone(class, pod))
            && !self.cluster.slot_order().is_empty()
            && (self.index.misnamed_len == 0 || !by_name())
            && !class.is_attracted(counters)
    }

    /// The window, and what is to be known of the nodes in it to score them.
    fn look<'a>(
        &'a self,
        mut lens: Lens<'a>,
        class: &'a Class,
        weights: &dormouse_scheduler_decide::facts::Weights,
        around: Around,
    ) -> (Lens<'a>, Window) {
        let counters = &self.index.counters;
        if class.is_counted() {
            let mut bonus = class.bonus.clone();
            let repelling = class.reject(&mut bonus, counters, lens.kinds);
            let by_node = |id: &u32| &counters.get(*id).by_node;
            lens.repelling = repelling.iter().map(by_node).collect();
            lens.bonus = Cow::Owned(bonus);
            let spreads = class.spread.iter().filter(|one| one.is_by_node());
            lens.spreading = spreads.map(|one| by_node(&one.counter)).collect();
        }
        let nodes_len = lens.order.len();
        let is_all = usize::try_from(around.limit).is_ok_and(|limit| limit >= nodes_len);
        if !is_all && lens.spreading.is_empty() && lens.has_few_repelled(around.limit) {
            lens.bar();
        }
        let window = if is_all {
            Window::all(nodes_len, lens.segments.len())
        } else {
            Window::of(around, &lens)
        };
        if class.is_even && class.spread.is_empty() {
            return (lens, window);
        }
        let survey = Survey::new(&lens, &window.pieces);
        let mut normalized = class.normalized(weights, |kind| survey.feasible[kind] > 0);
        for (after, before) in normalized.iter_mut().zip(lens.bonus.iter()) {
            if *before == REJECTED {
                *after = REJECTED;
            }
        }
        lens.bonus = Cow::Owned(normalized);
        if !class.spread.is_empty() {
            let source = spread::Source {
                class,
                kinds: lens.kinds,
                counters,
                weight: weights.spread,
            };
            let mut scores = Scores::new(source, &survey.feasible);
            survey.extend(&lens, &mut scores);
            lens.spread = Some(scores);
        }
        (lens, window)
    }
}
