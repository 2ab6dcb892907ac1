//! The agent's benchmark of 100,000 Services without a network, and the bounds of its rows.

use anyhow::{Context, Result};

use crate::binaries;
use crate::progress::{self, Output};
use crate::report::{Bound, Report, Row};

/// The time of a program that does nothing, and what the lookup takes beyond that: its bound is a multiple, for hosts of any speed.
const EMPTY: &str = "an empty program";
const LOOKUP: &str = "lookup and selection, minus that";

/// Bounds by name; other rows are only reported.
const BOUNDS: &[(&str, Bound)] = &[
    (LOOKUP, Bound::RatioAtMost(4.7)),
    ("maps of services", Bound::AtMost(80.0)),
    ("program an empty node", Bound::AtMost(1.0)),
    ("program a restarted agent", Bound::AtMost(2.0)),
    ("one endpoint changes, p99", Bound::AtMost(100.0)),
    ("churn of 10,000 changes/s", Bound::AtMost(10.0)),
    ("flip 100,000 VIPs", Bound::AtMost(1.0)),
    ("a wake during a full sync, over idle", Bound::AtMost(2.0)),
    ("a pod during a full sync, over idle", Bound::AtMost(2.0)),
    ("a scrape during a full sync, over idle", Bound::AtMost(2.0)),
];

/// Builds and runs the benchmark, before anything else runs that could disturb it.
pub(super) fn report(report: &mut Report) -> Result<()> {
    let mut bench = binaries::cargo();
    bench.args([
        "bench",
        "--package",
        "dormouse-agent-datapath",
        "--bench",
        "dataplane",
    ]);
    let title = "program 100,000 services with 1,000,000 backends";
    let output = progress::run(title, &mut bench, Output::ErrorsOnFailure)?;
    let mut empty_ns = None;
    for line in output.lines() {
        let mut cells = line.split('\t');
        let (Some(name), Some(value), Some(unit)) = (cells.next(), cells.next(), cells.next())
        else {
            continue;
        };
        let value = value
            .parse()
            .with_context(|| format!("the benchmark printed {line:?}"))?;
        let row = Row::measured(name, value, unit);
        let row = match empty_ns.filter(|_| name == LOOKUP) {
            Some(empty_ns) => row.against(empty_ns),
            None => row,
        };
        if name == EMPTY {
            empty_ns = Some(value);
        }
        report.push(with_bound(row, name));
    }
    Ok(())
}

fn with_bound(row: Row, name: &str) -> Row {
    match BOUNDS.iter().find(|(bound, _)| *bound == name) {
        Some((_, bound)) => row.must(*bound),
        None => row,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_judged_by_its_own_bound() {
        let row = |name, value| with_bound(Row::measured(name, value, "s"), name);
        assert!(row("program an empty node", 0.9).reached);
        assert!(!row("program an empty node", 1.1).reached);
        assert!(row("something else", 1e9).reached);
    }
}
