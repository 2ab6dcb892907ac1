//! What 100,000 services cost without a network: the agent's own measurement, beside what each figure must reach.

use anyhow::{Context, Result};

use crate::binaries;
use crate::progress::{self, Output};
use crate::report::{Bound, Report, Row};

/// What is measured and must reach something; what else the measurement says is only told.
const BOUNDS: &[(&str, Bound)] = &[
    ("lookup and pick, over that", Bound::AtMost(150.0)),
    ("maps of services", Bound::AtMost(80.0)),
    ("program an empty node", Bound::AtMost(1.0)),
    ("program a restarted agent", Bound::AtMost(2.0)),
    ("one endpoint changes, p99", Bound::AtMost(100.0)),
    ("churn of 10,000 changes/s", Bound::AtMost(10.0)),
    ("flip 100,000 VIPs", Bound::AtMost(1.0)),
];

/// Builds and runs it; before anything else runs, so that it is not disturbed.
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
    let told = progress::run(title, &mut bench, Output::ErrorsOnFailure)?;
    for line in told.lines() {
        let mut cells = line.split('\t');
        let (Some(name), Some(value), Some(unit)) = (cells.next(), cells.next(), cells.next())
        else {
            continue;
        };
        let value = value
            .parse()
            .with_context(|| format!("the measurement says {line:?}"))?;
        report.push(judged(Row::measured(name, value, unit), name));
    }
    Ok(())
}

fn judged(row: Row, name: &str) -> Row {
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
        let row = |name, value| judged(Row::measured(name, value, "s"), name);
        assert!(row("program an empty node", 0.9).reached);
        assert!(!row("program an empty node", 1.1).reached);
        assert!(row("something else", 1e9).reached);
    }
}
