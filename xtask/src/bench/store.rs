//! The store's benchmark: a program of its own, so that it is built in a short time and without BPF, prints the rows.

mod kills;

use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::binaries;
use crate::progress::{self, Output};
use crate::report::{Bound, Report, Row, Value};

/// The program, and the package with it.
const PROGRAM: &str = "dormouse-store-bench";
/// The group of the kills, which a run without groups leaves out: it takes as long as all others.
const KILLS: &str = "kills";

/// A row as the program prints it.
#[derive(Deserialize)]
struct Line {
    name: String,
    value: Value,
    unit: String,
    peer: Option<f64>,
    ratio: Option<f64>,
    must: Option<Bound>,
}

impl Line {
    fn row(self) -> Row {
        let mut row = match self.value {
            Value::Number(value) => Row::measured(&self.name, value, &self.unit),
            Value::Text(text) => Row::noted(&self.name, &text),
        };
        if let Some(peer) = self.peer {
            row = row.against(peer);
        }
        row.ratio = self.ratio.or(row.ratio);
        match self.must {
            Some(bound) => row.must(bound),
            None => row,
        }
    }
}

/// Builds the program and runs it with these groups, or with all. The group of kills is a test of its own.
pub(super) fn run(groups: &[String]) -> Result<Report> {
    let (kills, groups): (Vec<_>, Vec<_>) = groups.iter().cloned().partition(|name| name == KILLS);
    let mut report = Report::new("store");
    if kills.is_empty() || !groups.is_empty() {
        measure(&groups, &mut report)?;
    }
    if !kills.is_empty() {
        report.push(kills::run()?);
    }
    Ok(report)
}

fn measure(groups: &[String], report: &mut Report) -> Result<()> {
    let mut command = Command::new(binaries::build_package(PROGRAM)?);
    command.arg("run");
    if !groups.is_empty() {
        command.args(["--only", &groups.join(",")]);
    }
    let output = progress::run("measure the store", &mut command, Output::ErrorsOnFailure)?;
    read_rows(&output, report)
}

fn read_rows(output: &str, report: &mut Report) -> Result<()> {
    for line in output.lines() {
        let line: Line = serde_json::from_str(line)
            .with_context(|| format!("`{line}` of {PROGRAM} is not a row"))?;
        report.push(line.row());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_with_their_bounds() {
        let lines = [
            r#"{"name":"a","value":3.0,"unit":"µs","peer":2.0,"must":{"ratioAtMost":1.25}}"#,
            r#"{"name":"b","value":90.0,"unit":"%","peer":null,"must":{"atLeast":80.0}}"#,
            r#"{"name":"etcd","value":"not installed","unit":"","peer":null,"must":null}"#,
            r#"{"name":"median of ratios","value":3.0,"unit":"µs","peer":2.0,"ratio":1.2,"must":{"ratioAtMost":1.25}}"#,
        ];
        let mut report = Report::new("store");
        read_rows(&lines.join("\n"), &mut report).unwrap();
        let reached: Vec<_> = report.rows.iter().map(|row| row.reached).collect();
        assert_eq!(reached, [false, true, true, true]);
        assert_eq!(report.rows[0].ratio, Some(1.5));
        assert_eq!(report.rows[3].ratio, Some(1.2));
        assert_eq!(
            report.rows[2].value,
            Value::Text("not installed".to_owned())
        );
    }

    #[test]
    fn a_line_that_is_no_row_is_named() {
        let error = read_rows("panicked", &mut Report::new("store")).unwrap_err();
        assert!(error.to_string().contains("`panicked`"), "{error}");
    }
}
