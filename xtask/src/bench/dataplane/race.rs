//! Interleaved measurements of several sides, so that noise of the machine affects all of them equally.

use std::net::SocketAddrV6;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Bench;
use super::load::Direction;
use super::pods::Pod;
use super::side::Side;
use crate::bench::percentile::percentile;
use crate::progress::Step;

/// Pause before the first measurement: the kernel completes configuration changes asynchronously.
const SETTLE: Duration = Duration::from_secs(3);

/// One series of measurements, one sample per round.
pub(super) struct Series<'a> {
    /// Its row's name.
    pub(super) name: &'static str,
    /// The pod that connects.
    pub(super) client: &'a Pod,
    /// Destinations, in turn.
    pub(super) targets: Vec<SocketAddrV6>,
    /// Direction of a stream's data.
    pub(super) direction: Direction,
    samples: Vec<f64>,
    /// Failed connections of all rounds.
    pub(super) failed: f64,
}

impl<'a> Series<'a> {
    /// A series from the side's client to `targets`.
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

    /// The same, with the data sent to the client.
    pub(super) fn down(self) -> Self {
        Self {
            direction: Direction::Down,
            ..self
        }
    }

    /// The median of all samples.
    pub(super) fn median(&self) -> f64 {
        percentile(&self.samples, 0.5)
    }

    /// The median of the ratios of this series' and the other's sample of the same round.
    pub(super) fn against(&self, other: &Self) -> f64 {
        let pairs = self.samples.iter().zip(&other.samples);
        let ratios: Vec<_> = pairs.map(|(own, other)| own / other).collect();
        percentile(&ratios, 0.5)
    }
}

/// Series that are measured in turn.
pub(super) struct Race {
    /// Title of its step.
    pub(super) title: &'static str,
    /// How often each series is measured.
    pub(super) rounds: usize,
}

impl Race {
    /// Measures all series in each round. Each round begins with the next one, so that the effect of a series on its
    /// successor is distributed equally.
    pub(super) fn run<'a>(
        &self,
        bench: &Bench<'_>,
        series: &mut [Series<'a>],
        measure: impl Fn(&mut Series<'a>) -> Result<f64>,
    ) -> Result<()> {
        let step = Step::begin(self.title);
        bench.options.interrupt.sleep(SETTLE)?;
        for round in 0..self.rounds {
            step.at(&format!("round {} of {}", round + 1, self.rounds));
            for turn in 0..series.len() {
                let one = &mut series[(round + turn) % series.len()];
                let sample = measure(one);
                let sample = sample.with_context(|| format!("failed to measure {}", one.name))?;
                one.samples.push(sample);
            }
        }
        step.done();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        let pod = super::super::pods::example();
        let sampled = |samples: &[f64]| Series {
            name: "",
            client: &pod,
            targets: Vec::new(),
            direction: Direction::Up,
            samples: samples.to_vec(),
            failed: 0.0,
        };
        // The machine was slow in the second round, and slowest in the third.
        let (own, other) = (
            sampled(&[200.0, 100.0, 30.0]),
            sampled(&[100.0, 50.0, 10.0]),
        );
        assert!((own.against(&other) - 2.0).abs() < 1e-9);
        assert!((own.median() - 100.0).abs() < 1e-9);
    }
}
