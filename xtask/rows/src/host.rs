//! The machine during the run: its speed, the CPU time that it did not get, and its load.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::row::Row;

/// Steps of the fixed calculation, each of which needs the result of the one before.
const STEPS: u64 = 100_000_000;
/// A factor without short cycles (Knuth's, of a linear congruential generator modulo 2^64).
const FACTOR: u64 = 6_364_136_223_846_793_005;

/// The machine before the measurements.
pub struct Before {
    ms: f64,
    times: CpuTimes,
}

impl Before {
    /// Reads the counters, and takes the time of a fixed calculation.
    pub fn read() -> Result<Self> {
        Ok(Self {
            ms: calculation_ms(),
            times: CpuTimes::read()?,
        })
    }

    /// Prints the rows.
    pub fn report(&self) -> Result<()> {
        for figure in self.figures()? {
            let row = Row::new(figure.name, figure.value, figure.unit);
            let row = match figure.before {
                Some(before) => row.against(before),
                None => row,
            };
            row.print()?;
        }
        Ok(())
    }

    /// The figures of the rows: cores, speed, stolen time, load.
    pub fn figures(&self) -> Result<[Figure; 4]> {
        let times = CpuTimes::read()?;
        let cores = std::thread::available_parallelism()?.get();
        let figure = |name, value, unit| Figure {
            name,
            value,
            before: None,
            unit,
        };
        let stolen = 100.0 * times.stolen_since(&self.times);
        Ok([
            figure("host: cores", f64::from(u32::try_from(cores)?), ""),
            Figure {
                before: Some(self.ms),
                ..figure(
                    "host: a fixed calculation, at the end and at the start",
                    calculation_ms(),
                    "ms",
                )
            },
            figure(
                "host: CPU time that the hypervisor gave to others",
                stolen,
                "%",
            ),
            figure("host: load average at the end", load_average()?, ""),
        ])
    }
}

/// A figure of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The row's name.
    pub name: &'static str,
    /// The value at the end of the run.
    pub value: f64,
    /// The value at its start, where it is compared.
    pub before: Option<f64>,
    /// The unit of both.
    pub unit: &'static str,
}

fn calculation_ms() -> f64 {
    let began = Instant::now();
    let mut number = 1_u64;
    for step in 0..STEPS {
        number = black_box(number.wrapping_mul(FACTOR).wrapping_add(step));
    }
    began.elapsed().as_secs_f64() * 1e3
}

/// The load of the machine in the last minute.
fn load_average() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").context("failed to read /proc/loadavg")?;
    let first = text.split(' ').next().unwrap_or_default();
    first.parse().context("/proc/loadavg has no number")
}

/// CPU times of all cores since the start of the machine, in ticks.
struct CpuTimes {
    all: u64,
    stolen: u64,
}

impl CpuTimes {
    fn read() -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat").context("failed to read /proc/stat")?;
        Self::parse(&stat)
    }

    /// The first line of /proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of user.
    fn parse(stat: &str) -> Result<Self> {
        let line = stat.lines().next().unwrap_or_default();
        let fields: Vec<u64> = line
            .split_ascii_whitespace()
            .skip(1)
            .take(8)
            .map(str::parse)
            .collect::<Result<_, _>>()
            .context("/proc/stat has no CPU times")?;
        let stolen = fields.get(7).context("/proc/stat has no steal time")?;
        Ok(Self {
            all: fields.iter().sum(),
            stolen: *stolen,
        })
    }

    /// The stolen share of the time since `before`.
    fn stolen_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stolen_share_is_that_of_the_time_between_two_reads() {
        let before = CpuTimes::parse("cpu  10 0 10 70 0 0 0 10 5 0\ncpu0 1 1\n").unwrap();
        let after = CpuTimes::parse("cpu  20 0 20 120 0 0 0 40 9 0\n").unwrap();
        assert!((after.stolen_since(&before) - 0.3).abs() < 1e-9);
        assert!(CpuTimes::parse("cpu  1 2 3\n").is_err());
        assert!(CpuTimes::parse("intr x\n").is_err());
    }
}
