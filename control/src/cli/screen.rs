//! Shows the server's tables: its columns, chosen and named once, by the server.

use std::io::Write;

use serde_json::Value;

use super::{Exit, Failure, codes::Code, output::Columns};

/// A table on the screen, which further rows may join.
#[derive(Debug)]
pub(super) struct Screen {
    /// Shows columns that are for `-o wide`.
    pub(super) wide: bool,
    /// Shows each object's namespace first.
    pub(super) namespaces: bool,
    /// Shows the headings.
    pub(super) headings: bool,
    shown: Vec<usize>,
    columns: Columns,
}

impl Screen {
    pub(super) fn new(wide: bool, namespaces: bool, headings: bool) -> Self {
        Self {
            wide,
            namespaces,
            headings,
            shown: Vec::new(),
            columns: Columns::default(),
        }
    }

    /// Shows a table: its headings, if it has any, and its rows.
    pub(super) fn show(&mut self, out: &mut dyn Write, table: &Value) -> Result<(), Failure> {
        let mut lines = Vec::new();
        let definitions = table["columnDefinitions"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        if !definitions.is_empty() {
            let headings = self.learn(definitions);
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

    /// Remembers which columns to show; returns their headings.
    fn learn(&mut self, definitions: &[Value]) -> Vec<String> {
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

/// A cell for people: `-` where there is nothing to say. Line breaks and escapes would break the screen.
fn text(cell: &Value) -> String {
    let text = match cell {
        Value::Null => String::new(),
        Value::String(text) => text.replace(|c: char| c.is_control(), " "),
        other => other.to_string(),
    };
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

fn no_table() -> Failure {
    Failure::new(
        Code::Output,
        Exit::No,
        "the server's answer is no table",
        "use -o json",
    )
}
