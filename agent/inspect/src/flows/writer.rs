//! Writes rows as they are read; the column widths of a table follow from the first rows.

use std::io::Write;

use dormouse_command::{ListFormat, OutputFormat, write_value};
use serde_json::to_string;

use super::FlowRow;
use crate::output::{Row, Table};
use crate::{API_VERSION, Exit, InspectError};

/// Number of rows that decide the column widths.
const FITTED: usize = 512;

/// Writes the rows of one answer.
pub(super) struct Writer<'a> {
    out: &'a mut dyn Write,
    form: ListFormat,
    table: Table,
    /// Rows that wait until the column widths are known.
    waiting: Vec<FlowRow>,
    pub(super) count: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut dyn Write, form: ListFormat) -> Result<Self, InspectError> {
        if form.output == Some(OutputFormat::Json) {
            let kind = FlowRow::KIND;
            write!(
                out,
                "{{\"apiVersion\":\"{API_VERSION}\",\"kind\":\"{kind}\",\"items\":["
            )?;
        }
        Ok(Self {
            table: Table::new::<FlowRow>(form.output == Some(OutputFormat::Wide), !form.no_headers),
            out,
            form,
            waiting: Vec::new(),
            count: 0,
        })
    }

    pub(super) fn row(&mut self, row: FlowRow) -> Result<(), InspectError> {
        self.count += 1;
        match self.form.output {
            Some(OutputFormat::Json) => {
                let comma = if self.count == 1 { "" } else { "," };
                let text = to_string(&row).map_err(|error| unwritable(&error))?;
                Ok(write!(self.out, "{comma}\n{text}")?)
            }
            Some(OutputFormat::Name) => Ok(writeln!(self.out, "{}", row.name())?),
            _ if self.count <= FITTED || self.form.output == Some(OutputFormat::Yaml) => {
                self.waiting.push(row);
                Ok(())
            }
            _ => {
                self.flush()?;
                let cells = row.cells();
                self.table.fit(&cells);
                Ok(self.table.write(self.out, &cells)?)
            }
        }
    }

    fn flush(&mut self) -> Result<(), InspectError> {
        let rows = std::mem::take(&mut self.waiting);
        let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
        for cells in &cells {
            self.table.fit(cells);
        }
        for cells in &cells {
            self.table.write(self.out, cells)?;
        }
        Ok(())
    }

    pub(super) fn end(mut self) -> Result<usize, InspectError> {
        match self.form.output {
            Some(OutputFormat::Json) => writeln!(self.out, "\n]}}")?,
            Some(OutputFormat::Yaml) => {
                let list = crate::output::listed(&self.waiting);
                write_value(self.out, &list, OutputFormat::Yaml)?;
            }
            _ => self.flush()?,
        }
        self.out.flush()?;
        Ok(self.count)
    }
}

fn unwritable(error: &dyn std::error::Error) -> InspectError {
    InspectError::new(
        Exit::No,
        format!("cannot write the answer: {error}"),
        "use -o wide",
    )
}
