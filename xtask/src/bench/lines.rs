//! The rows of a benchmark that is a program of its own: lines of JSON on its standard output.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::report::{Bound, Report, Row, Value};

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

/// Adds the rows that a program has printed.
pub(super) fn read(program: &str, output: &str, report: &mut Report) -> Result<()> {
    for line in output.lines() {
        let line: Line = serde_json::from_str(line)
            .with_context(|| format!("`{line}` of {program} is not a row"))?;
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
        read("bench", &lines.join("\n"), &mut report).unwrap();
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
        let error = read("bench", "panicked", &mut Report::new("store")).unwrap_err();
        assert!(error.to_string().contains("`panicked`"), "{error}");
    }
}
