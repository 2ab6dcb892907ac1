//! Looks at several sides in turns, so that whatever the machine does meanwhile meets all of them.

use std::net::SocketAddrV6;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Bench;
use super::load::Direction;
use super::pods::Pod;
use super::side::Side;
use crate::bench::percentile::percentile;
use crate::progress::Step;

/// What was just configured is still being tidied up behind the scenes.
const SETTLE: Duration = Duration::from_secs(3);

/// Something that is measured in every round.
pub(super) struct Lane<'a> {
    /// What people call it.
    pub(super) name: &'static str,
    /// Who asks.
    pub(super) client: &'a Pod,
    /// Where to, in turns.
    pub(super) targets: Vec<SocketAddrV6>,
    /// Which way a stream's data goes.
    pub(super) direction: Direction,
    samples: Vec<f64>,
    /// What failed in all rounds, where something can.
    pub(super) failed: f64,
}

impl<'a> Lane<'a> {
    /// From the side's client to these.
    pub(super) fn new(name: &'static str, side: &'a Side, targets: Vec<SocketAddrV6>) -> Self {
        Self {
            name,
            client: &side.pods.client,
            targets,
            direction: Direction::Up,
            samples: Vec::new(),
            failed: 0.0,
        }
    }

    /// The same with the data towards the client.
    pub(super) fn down(self) -> Self {
        Self {
            direction: Direction::Down,
            ..self
        }
    }

    /// The median round.
    pub(super) fn median(&self) -> f64 {
        percentile(&self.samples, 0.5)
    }

    /// The median over all rounds of this lane's sample divided by the other's of the same round.
    pub(super) fn against(&self, other: &Self) -> f64 {
        let pairs = self.samples.iter().zip(&other.samples);
        let ratios: Vec<_> = pairs.map(|(own, other)| own / other).collect();
        percentile(&ratios, 0.5)
    }
}

/// Measures all lanes so many times. Each round begins with another one: what one leaves behind hits all alike.
pub(super) fn run(
    bench: &Bench<'_>,
    title: &str,
    rounds: usize,
    lanes: &mut [Lane<'_>],
    measure: impl Fn(&mut Lane<'_>) -> Result<f64>,
) -> Result<()> {
    let step = Step::begin(title);
    bench.options.interrupt.sleep(SETTLE)?;
    for round in 0..rounds {
        step.at(&format!("round {} of {rounds}", round + 1));
        for turn in 0..lanes.len() {
            let lane = &mut lanes[(round + turn) % lanes.len()];
            let sample = measure(lane);
            let sample = sample.with_context(|| format!("failed to measure {}", lane.name))?;
            lane.samples.push(sample);
        }
    }
    step.done();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        let pod = super::super::pods::example();
        let lane = |samples: &[f64]| Lane {
            name: "",
            client: &pod,
            targets: Vec::new(),
            direction: Direction::Up,
            samples: samples.to_vec(),
            failed: 0.0,
        };
        // The machine was slow in the second round, and slowest in the third.
        let (own, other) = (lane(&[200.0, 100.0, 30.0]), lane(&[100.0, 50.0, 10.0]));
        assert!((own.against(&other) - 2.0).abs() < 1e-9);
        assert!((own.median() - 100.0).abs() < 1e-9);
    }
}
