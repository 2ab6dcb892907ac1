//! Aligned columns, whose widths only grow: rows that a watch adds later stay aligned with those already printed. On a narrow screen a
//! row takes several lines, each with some of the columns.

use std::io::{self, Write, stdout};
use std::ops::Range;

use super::screen::{printable, screen_width, wrap};

/// Spaces between two columns.
const GAP: usize = 3;
/// Spaces before the further lines of a row.
const INDENT: usize = 2;

/// The widths of a table's columns, in characters.
#[derive(Debug, Default)]
pub struct Columns {
    widths: Vec<usize>,
    /// Width of the screen; none: each row is one line.
    screen: Option<usize>,
}

impl Columns {
    /// Columns that fit the screen on which they are written.
    pub fn for_screen() -> Self {
        Self::for_width(screen_width(stdout()))
    }

    /// Columns that fit a screen of this width in characters; none: each row is one line.
    pub fn for_width(screen: Option<usize>) -> Self {
        Self {
            screen,
            ..Self::default()
        }
    }

    /// Writes all rows, the headings first.
    pub fn write_all(mut self, out: &mut dyn Write, rows: &[Vec<String>]) -> io::Result<()> {
        for row in rows {
            self.fit(row);
        }
        rows.iter().try_for_each(|row| self.write(out, row))
    }

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
        for columns in self.lines() {
            let indent = if columns.start == 0 { 0 } else { INDENT };
            let line: String = columns.map(|index| self.cell(row, index)).collect();
            let width = self.screen.map(|screen| screen.saturating_sub(indent));
            for (number, part) in wrap(line.trim_end(), width).iter().enumerate() {
                let indent = if number == 0 { indent } else { INDENT };
                writeln!(out, "{:indent$}{part}", "")?;
            }
        }
        Ok(())
    }

    /// The columns of each line of a row: the same for all rows of these widths.
    fn lines(&self) -> Vec<Range<usize>> {
        let screen = self.screen.unwrap_or(usize::MAX);
        let (mut lines, mut start, mut used) = (Vec::new(), 0, 0);
        for (index, width) in self.widths.iter().enumerate() {
            if index > start && used + width > screen {
                lines.push(start..index);
                (start, used) = (index, INDENT);
            }
            used += width + GAP;
        }
        lines.push(start..self.widths.len());
        lines
    }

    /// A cell with the spaces after it.
    fn cell(&self, row: &[String], index: usize) -> String {
        let cell = row.get(index).map_or("", String::as_str);
        let cell = printable(cell);
        let cell = if cell.is_empty() { "-" } else { &cell };
        let width = self.widths[index] + GAP;
        format!("{cell:<width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rows: &[&[&str]], screen: Option<usize>) -> String {
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(ToString::to_string).collect())
            .collect();
        let mut text = Vec::new();
        let columns = Columns::for_width(screen);
        columns.write_all(&mut text, &rows).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn columns_are_aligned_and_lines_end_without_spaces() {
        let rows: [&[&str]; 3] = [&["NAME", "AGE"], &["a-long-name", "5s"], &["\x1bb", ""]];
        let want = "NAME          AGE\na-long-name   5s\n b            -\n";
        assert_eq!(written(&rows, None), want);
        assert_eq!(written(&rows, Some(17)), want);
    }

    #[test]
    fn on_a_narrow_screen_the_columns_of_a_row_are_on_several_lines() {
        let rows: [&[&str]; 2] = [
            &["NAME", "STATE", "READY", "VIP", "AGE"],
            &["shop-frontend", "Asleep", "0", "fd00:10::1:17", "12d"],
        ];
        let want = "\
NAME            STATE    READY
  VIP             AGE
shop-frontend   Asleep   0
  fd00:10::1:17   12d
";
        assert_eq!(written(&rows, Some(40)), want);
        assert_eq!(written(&rows, Some(80)).lines().count(), 2);
    }

    #[test]
    fn a_cell_that_is_wider_than_the_screen_is_wrapped_at_words() {
        let message = "no node has room for the pod: 3 of 3 nodes are full";
        let rows: [&[&str]; 1] = [&["5s", "Warning", message]];
        let want = "\
5s   Warning
  no node has room for the pod: 3 of 3
  nodes are full
";
        assert_eq!(written(&rows, Some(40)), want);
    }
}
