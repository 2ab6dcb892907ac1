//! Output formats: JSON and YAML for programs, aligned columns for people.

use std::io::{self, Write};

use dormouse_command::{Columns, ListFormat, OutputFormat, write_value};
use serde::Serialize;
use serde_json::{Value, json};

use super::{API_VERSION, InspectError};

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
pub fn list<R: Row>(
    out: &mut dyn Write,
    rows: &[R],
    format: ListFormat,
) -> Result<(), InspectError> {
    match format.output {
        Some(output @ (OutputFormat::Json | OutputFormat::Yaml)) => {
            Ok(write_value(out, &listed(rows), output)?)
        }
        Some(OutputFormat::Name) => {
            for row in rows {
                writeln!(out, "{}", row.name())?;
            }
            Ok(())
        }
        output => {
            let mut table = Table::new::<R>(output.is_some(), !format.no_headers);
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

/// A table of rows of one type, with the columns of its format.
#[derive(Debug)]
pub struct Table {
    columns: &'static [Column],
    wide: bool,
    headings: bool,
    aligned: Columns,
}

impl Table {
    /// A table for rows of type `R`.
    pub fn new<R: Row>(wide: bool, headings: bool) -> Self {
        let mut table = Self {
            columns: R::COLUMNS,
            wide,
            headings,
            aligned: Columns::for_screen(),
        };
        if headings {
            table.fit(&table.column_names());
        }
        table
    }

    /// Widens the columns to fit a row.
    pub fn fit(&mut self, cells: &[String]) {
        let shown = self.shown(cells);
        self.aligned.fit(&shown);
    }

    /// Writes a row, and before the first row the headings.
    pub fn write(&mut self, out: &mut dyn Write, cells: &[String]) -> io::Result<()> {
        if std::mem::take(&mut self.headings) {
            self.aligned.write(out, &self.shown(&self.column_names()))?;
        }
        self.aligned.write(out, &self.shown(cells))
    }

    fn column_names(&self) -> Vec<String> {
        let names = self.columns.iter().map(|(name, _)| (*name).to_owned());
        names.collect()
    }

    /// The cells of the columns that the format shows.
    fn shown(&self, cells: &[String]) -> Vec<String> {
        let columns = self.columns.iter().zip(cells);
        let shown = columns.filter(|((_, wide), _)| self.wide || !wide);
        shown.map(|(_, cell)| cell.clone()).collect()
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

    fn written(output: Option<OutputFormat>, no_headers: bool) -> String {
        let mut out = Vec::new();
        let format = ListFormat { output, no_headers };
        list(
            &mut out,
            &[Pair("a-long-name", "5s"), Pair("b", "")],
            format,
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
        assert_eq!(
            written(None, false),
            "NAME          AGE\na-long-name   5s\nb             -\n"
        );
        assert_eq!(
            written(Some(OutputFormat::Wide), true),
            "a-long-name   5s   here\nb             -    here\n"
        );
    }

    #[test]
    fn a_json_list_has_a_kind_and_items() {
        let list: Value = serde_json::from_str(&written(Some(OutputFormat::Json), false)).unwrap();
        assert_eq!(list["apiVersion"], "dormouse.dev/v1");
        assert_eq!(
            (&list["kind"], list["items"].as_array().unwrap().len()),
            (&"PairList".into(), 2)
        );
        assert_eq!(
            written(Some(OutputFormat::Name), false),
            "pair/a-long-name\npair/b\n"
        );
        assert!(written(Some(OutputFormat::Yaml), false).contains("kind: PairList"));
    }

    #[test]
    fn ages_are_written_as_kubectl_does() {
        let ages = [0, 119, 120, 7_199, 7_200].map(age);
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h"]);
    }
}
