//! Writes answers: as JSON or YAML for programs, as aligned columns for people.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::Value;

use super::{Exit, Failure, codes::Code};

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// All columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// The names only.
    Name,
}

/// Writes a value for programs.
pub(super) fn value(out: &mut dyn Write, value: &Value, output: Output) -> Result<(), Failure> {
    let text = match output {
        Output::Yaml => serde_saphyr::to_string(value).map_err(|error| unwritable(&error))?,
        _ => serde_json::to_string_pretty(value).map_err(|error| unwritable(&error))?,
    };
    Ok(writeln!(out, "{}", text.trim_end())?)
}

fn unwritable(error: &dyn std::error::Error) -> Failure {
    Failure::new(
        Code::Output,
        Exit::No,
        format!("cannot write the answer: {error}"),
        "use -o json",
    )
}

/// Columns whose widths are remembered, so that rows which come later stay in line.
#[derive(Debug, Default)]
pub(super) struct Columns {
    widths: Vec<usize>,
}

impl Columns {
    /// Makes room for `row`.
    pub(super) fn fit(&mut self, row: &[String]) {
        self.widths.resize(self.widths.len().max(row.len()), 0);
        for (width, cell) in self.widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }

    /// Writes `row`, three spaces between columns, none at its end.
    pub(super) fn write(&self, out: &mut dyn Write, row: &[String]) -> io::Result<()> {
        let cells = row
            .iter()
            .zip(&self.widths)
            .map(|(cell, width)| format!("{cell:<width$}   "));
        let line: String = cells.collect();
        writeln!(out, "{}", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_in_line_and_end_without_spaces() {
        let rows = [["NAME", "AGE"], ["a-long-name", "5s"]].map(|row| row.map(String::from));
        let mut columns = Columns::default();
        for row in &rows {
            columns.fit(row);
        }
        let mut text = Vec::new();
        for row in &rows {
            columns.write(&mut text, row).unwrap();
        }
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "NAME          AGE\na-long-name   5s\n"
        );
    }
}
