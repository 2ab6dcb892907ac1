//! Output formats: JSON and YAML for programs, aligned columns for people.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use super::{API_VERSION, Exit, InspectError};

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// All columns, as text
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// One name per line
    Name,
}

/// The output flags of a list.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Form {
    /// Output format
    #[arg(short, long)]
    pub output: Option<Output>,
    /// Omit the column headings
    #[arg(long)]
    pub no_headers: bool,
}

/// A column: its heading, and whether it is for `-o wide` only.
pub type Column = (&'static str, bool);

/// A type whose values are listed, one per row.
pub trait Row: Serialize {
    /// The `kind` of a list document.
    const KIND: &'static str;
    /// The columns, in order.
    const COLUMNS: &'static [Column];
    /// One cell per column; an empty one is printed as `-`.
    fn cells(&self) -> Vec<String>;
    /// The row in `-o name`, as `kind/name`.
    fn name(&self) -> String;
}

/// Writes a list in the requested format.
pub fn list<R: Row>(out: &mut dyn Write, rows: &[R], form: Form) -> Result<(), InspectError> {
    match form.output {
        Some(output @ (Output::Json | Output::Yaml)) => value(out, &listed(rows), output),
        Some(Output::Name) => {
            for row in rows {
                writeln!(out, "{}", row.name())?;
            }
            Ok(())
        }
        output => {
            let mut table = Table::new::<R>(output.is_some(), !form.no_headers);
            for row in rows {
                table.fit(&row.cells());
            }
            for row in rows {
                table.write(out, &row.cells())?;
            }
            Ok(())
        }
    }
}

/// The list document for JSON and YAML.
pub fn listed<R: Row>(rows: &[R]) -> Value {
    json!({"apiVersion": API_VERSION, "kind": R::KIND, "items": rows})
}

/// Writes a document as JSON or YAML.
pub fn value(out: &mut dyn Write, value: &Value, output: Output) -> Result<(), InspectError> {
    let text = match output {
        Output::Yaml => serde_saphyr::to_string(value).map_err(|error| unwritable(&error))?,
        _ => serde_json::to_string_pretty(value).map_err(|error| unwritable(&error))?,
    };
    Ok(writeln!(out, "{}", text.trim_end())?)
}

fn unwritable(error: &dyn std::error::Error) -> InspectError {
    let message = format!("cannot write the answer: {error}");
    InspectError::new(Exit::No, message, "use -o json")
}

/// Aligned columns. Widths only grow, so later rows stay aligned with earlier ones.
#[derive(Debug)]
pub struct Table {
    columns: &'static [Column],
    wide: bool,
    headings: bool,
    widths: Vec<usize>,
}

impl Table {
    /// A table for rows of type `R`.
    pub fn new<R: Row>(wide: bool, headings: bool) -> Self {
        let mut table = Self {
            columns: R::COLUMNS,
            wide,
            headings,
            widths: Vec::new(),
        };
        if headings {
            let headings = R::COLUMNS.iter().map(|(heading, _)| (*heading).to_owned());
            table.fit(&headings.collect::<Vec<_>>());
        }
        table
    }

    /// Widens the columns to fit a row.
    pub fn fit(&mut self, cells: &[String]) {
        self.widths.resize(self.widths.len().max(cells.len()), 1);
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }

    /// Writes a row, and before the first row the headings.
    pub fn write(&mut self, out: &mut dyn Write, cells: &[String]) -> io::Result<()> {
        if std::mem::take(&mut self.headings) {
            let headings = self
                .columns
                .iter()
                .map(|(heading, _)| (*heading).to_owned());
            self.line(out, &headings.collect::<Vec<_>>())?;
        }
        self.line(out, cells)
    }

    /// Three spaces between columns, none at the end; `-` for an empty cell.
    fn line(&self, out: &mut dyn Write, cells: &[String]) -> io::Result<()> {
        let columns = self.columns.iter().zip(cells.iter().zip(&self.widths));
        let shown = columns.filter(|((_, wide), _)| self.wide || !wide);
        let padded = shown.map(|(_, (cell, width))| {
            let cell = cell.replace(|c: char| c.is_control(), " ");
            let cell = if cell.is_empty() { "-" } else { &cell };
            format!("{cell:<width$}   ")
        });
        let line: String = padded.collect();
        writeln!(out, "{}", line.trim_end())
    }
}

/// A duration in seconds, in kubectl's format of ages.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Pair(&'static str, &'static str);

    impl Row for Pair {
        const KIND: &'static str = "PairList";
        const COLUMNS: &'static [Column] = &[("NAME", false), ("AGE", false), ("WHERE", true)];
        fn cells(&self) -> Vec<String> {
            vec![self.0.into(), self.1.into(), "here".into()]
        }
        fn name(&self) -> String {
            format!("pair/{}", self.0)
        }
    }

    fn written(output: Option<Output>, no_headers: bool) -> String {
        let mut out = Vec::new();
        let form = Form { output, no_headers };
        list(&mut out, &[Pair("a-long-name", "5s"), Pair("b", "")], form).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
        assert_eq!(
            written(None, false),
            "NAME          AGE\na-long-name   5s\nb             -\n"
        );
        assert_eq!(
            written(Some(Output::Wide), true),
            "a-long-name   5s   here\nb             -    here\n"
        );
    }

    #[test]
    fn a_json_list_has_a_kind_and_items() {
        let list: Value = serde_json::from_str(&written(Some(Output::Json), false)).unwrap();
        assert_eq!(list["apiVersion"], "dormouse.dev/v1");
        assert_eq!(
            (&list["kind"], list["items"].as_array().unwrap().len()),
            (&"PairList".into(), 2)
        );
        assert_eq!(
            written(Some(Output::Name), false),
            "pair/a-long-name\npair/b\n"
        );
        assert!(written(Some(Output::Yaml), false).contains("kind: PairList"));
    }

    #[test]
    fn ages_are_written_as_kubectl_does() {
        let ages = [0, 119, 120, 7_199, 7_200].map(age);
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h"]);
    }
}
