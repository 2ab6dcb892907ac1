//! Counts decisions, and shows where they differ from kube-proxy's.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// So many standard deviations from an equal chance are no accident: less than one in 10^9.
const SIGMAS: f64 = 6.1;

#[derive(Default)]
pub(crate) struct Tally {
    counts: dormouse_vectors::Tally,
    pub(crate) by_node: usize,
    /// Refusals of TCP by a reset, which kube-proxy does by ICMP too.
    pub(crate) by_reset: usize,
    /// Checks of flows that went through the programs, and flows that could not.
    pub(crate) followed: usize,
    pub(crate) not_ours: usize,
    /// Counted from 1.
    step: usize,
    /// How often each place of a set of so many backends was chosen.
    chosen: BTreeMap<usize, Vec<u32>>,
}

impl Tally {
    pub(crate) fn begin(&mut self, scenario: &Value) {
        self.counts.begin(&scenario["id"], &scenario["group"]);
        self.step = 0;
    }

    pub(crate) fn step(&mut self) {
        self.step += 1;
    }

    /// One decision: ours beside the recorded one.
    pub(crate) fn compare(&mut self, what: &str, ours: &Value, wanted: &Value) {
        let step = self.step;
        self.counts.count(ours == wanted, || {
            format!("step {step}: {what}\n    ours   {ours}\n    wanted {wanted}")
        });
    }

    /// A backend was chosen so often, among so many.
    pub(crate) fn chosen(&mut self, place: usize, among: usize, times: u32) {
        self.chosen.entry(among).or_insert_with(|| vec![0; among])[place] += times;
    }

    /// The places of sets that were not chosen as often as others.
    pub(crate) fn unfair(&self) -> Vec<(usize, usize)> {
        let all = self.chosen.iter().flat_map(|(&among, counts)| {
            let whole = f64::from(counts.iter().sum::<u32>());
            let chance = 1.0 / among as f64;
            let deviation = (whole * chance * (1.0 - chance)).sqrt();
            let is_odd =
                move |count: u32| (f64::from(count) - whole * chance).abs() > SIGMAS * deviation;
            let places = counts.iter().enumerate();
            places.filter_map(move |(place, count)| is_odd(*count).then_some((among, place)))
        });
        all.collect()
    }

    pub(crate) fn decisions(&self) -> usize {
        self.counts.decisions()
    }

    pub(crate) fn differences(&self) -> usize {
        self.counts.differences()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            counts,
            by_node,
            by_reset,
            followed,
            not_ours,
            ..
        } = self;
        write!(f, "{counts}")?;
        if *by_node > 0 {
            write!(f, "\n  ({by_node} decided on the host: sent by the node")?;
            write!(
                f,
                "; {by_reset} refused by a reset where kube-proxy sends an ICMP error"
            )?;
            write!(
                f,
                "; {followed} about known flows, {not_ours} recorded flows left to the core)"
            )?;
        }
        Ok(())
    }
}
