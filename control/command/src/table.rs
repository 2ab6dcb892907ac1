//! Aligned columns, whose widths only grow: rows that a watch adds later stay aligned with those already printed.

use std::io::{self, Write};

/// The widths of a table's columns, in characters.
#[derive(Debug, Default)]
pub struct Columns {
    widths: Vec<usize>,
}

impl Columns {
    /// Widens the columns to hold `row`. To be called for every row before the first of them is written.
    pub fn fit(&mut self, row: &[String]) {
        // An empty cell is written as `-`.
        self.widths.resize(self.widths.len().max(row.len()), 1);
        for (width, cell) in self.widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }

    /// Writes one row: three spaces between columns, none at the end, `-` for an empty cell. Control characters become
    /// spaces, because line breaks and escape sequences would break the table.
    pub fn write(&self, out: &mut dyn Write, row: &[String]) -> io::Result<()> {
        let cells = row.iter().zip(&self.widths).map(|(cell, width)| {
            let cell = cell.replace(|c: char| c.is_control(), " ");
            let cell = if cell.is_empty() { "-" } else { &cell };
            format!("{cell:<width$}   ")
        });
        let line: String = cells.collect();
        writeln!(out, "{}", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_without_spaces() {
        let rows = [["NAME", "AGE"], ["a-long-name", "5s"], ["\x1bb", ""]];
        let rows = rows.map(|row| row.map(String::from));
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
            "NAME          AGE\na-long-name   5s\n b            -\n"
        );
    }
}
