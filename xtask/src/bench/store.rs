//! The store's benchmark: a program of its own, so that it is built in a short time and without BPF, prints the rows.

use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::binaries;
use crate::progress::{self, Output};
use crate::report::{Bound, Report, Row, Value};

/// The program, and the package with it.
const PROGRAM: &str = "dormouse-store-bench";

/// A row as the program prints it.
#[derive(Deserialize)]
struct Line {
    name: String,
    value: Value,
    unit: String,
    peer: Option<f64>,
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
        match self.must {
            Some(bound) => row.must(bound),
            None => row,
        }
    }
}

/// Builds the program and runs it.
pub(super) fn run() -> Result<Report> {
    let mut command = Command::new(binaries::build_package(PROGRAM)?);
    command.arg("run");
    let output = progress::run("measure the store", &mut command, Output::ErrorsOnFailure)?;
    report(&output)
}

fn report(output: &str) -> Result<Report> {
    let mut report = Report::new("store");
    for line in output.lines() {
        let line: Line = serde_json::from_str(line)
            .with_context(|| format!("`{line}` of {PROGRAM} is not a row"))?;
        report.push(line.row());
    }
    Ok(report)
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
        ];
        let report = report(&lines.join("\n")).unwrap();
        let reached: Vec<_> = report.rows.iter().map(|row| row.reached).collect();
        assert_eq!(reached, [false, true, true]);
        assert_eq!(report.rows[0].ratio, Some(1.5));
        assert_eq!(
            report.rows[2].value,
            Value::Text("not installed".to_owned())
        );
    }

    #[test]
    fn a_line_that_is_no_row_is_named() {
        let error = report("panicked").unwrap_err();
        assert!(error.to_string().contains("`panicked`"), "{error}");
    }
}
