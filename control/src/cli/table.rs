//! The server's tables on the terminal. The server chooses and names the columns, as kube-apiserver does for kubectl.

use std::io::Write;

use dormouse_command::{Columns, CommandError, Exit};
use serde_json::Value;

use super::codes::Code;

/// A printed table, to which a watch may add rows.
#[derive(Debug)]
pub(super) struct Table {
    /// Prints the columns of `-o wide` too.
    pub(super) wide: bool,
    /// Prints each object's namespace first.
    pub(super) namespaces: bool,
    /// Prints the headings above the next rows.
    pub(super) headings: bool,
    /// Indexes of the printed columns in the server's cells.
    shown: Vec<usize>,
    columns: Columns,
}

impl Table {
    /// An empty table for a screen of this width; none: each row is one line.
    pub(super) fn new(wide: bool, namespaces: bool, headings: bool, width: Option<usize>) -> Self {
        Self {
            wide,
            namespaces,
            headings,
            shown: Vec::new(),
            columns: Columns::for_width(width),
        }
    }

    /// Prints one `Table` reply: its headings, if it has column definitions, and its rows.
    pub(super) fn print(&mut self, out: &mut dyn Write, table: &Value) -> Result<(), CommandError> {
        let mut lines = Vec::new();
        let definitions = table["columnDefinitions"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        if !definitions.is_empty() {
            let headings = self.choose_columns(definitions);
            lines.extend(Some(headings).filter(|_| self.headings));
        }
        let rows = table["rows"].as_array().ok_or_else(no_table)?;
        lines.extend(rows.iter().map(|row| self.cells(row)));
        for line in &lines {
            self.columns.fit(line);
        }
        for line in &lines {
            self.columns.write(out, line)?;
        }
        Ok(out.flush()?)
    }

    /// Stores which columns are printed, and returns their headings. A watch sends definitions only once.
    fn choose_columns(&mut self, definitions: &[Value]) -> Vec<String> {
        let is_shown = |one: &Value| self.wide || one["priority"].as_i64().unwrap_or(0) == 0;
        self.shown = definitions
            .iter()
            .enumerate()
            .filter(|(_, one)| is_shown(one))
            .map(|(index, _)| index)
            .collect();
        let names = self
            .shown
            .iter()
            .map(|index| text(&definitions[*index]["name"]).to_uppercase());
        Some("NAMESPACE".to_owned())
            .filter(|_| self.namespaces)
            .into_iter()
            .chain(names)
            .collect()
    }

    fn cells(&self, row: &Value) -> Vec<String> {
        let namespace = self
            .namespaces
            .then(|| text(&row["object"]["metadata"]["namespace"]));
        namespace
            .into_iter()
            .chain(self.shown.iter().map(|index| text(&row["cells"][*index])))
            .collect()
    }
}

fn text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn no_table() -> CommandError {
    CommandError::new(
        Code::Output,
        Exit::No,
        "the server's reply is not a table",
        "use -o json",
    )
}
