//! Reports of the demo and of benchmarks: rows with bounds, as a table and as JSON.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// The result of a row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    /// A measured number, in the row's unit.
    Number(f64),
    /// An observation, for a claim.
    Text(String),
}

/// The bound of a row.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Bound {
    /// Least value, in the row's unit.
    AtLeast(f64),
    /// Largest value, in the row's unit.
    AtMost(f64),
    /// Largest ratio of the value and the peer's.
    RatioAtMost(f64),
    /// The claim must hold.
    Holds,
}

/// One measurement or claim.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Row {
    /// The measured quantity, or the claim.
    pub(crate) name: String,
    /// The result.
    pub(crate) value: Value,
    /// The value's unit; empty for a claim.
    pub(crate) unit: String,
    /// The peer's value, in the same unit.
    pub(crate) peer: Option<f64>,
    /// The value divided by the peer's.
    pub(crate) ratio: Option<f64>,
    /// Its bound; `None` if the number is only reported.
    pub(crate) must: Option<Bound>,
    /// Whether it reaches its bound.
    pub(crate) reached: bool,
}

impl Row {
    /// A number, without a bound until [`Row::must`] sets one.
    pub(crate) fn measured(name: &str, value: f64, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: Value::Number(value),
            unit: unit.to_owned(),
            peer: None,
            ratio: None,
            must: None,
            reached: true,
        }
    }

    /// As [`Row::measured`], for a count.
    pub(crate) fn counted(name: &str, count: u64, unit: &str) -> Self {
        Self::measured(name, count as f64, unit)
    }

    /// A claim, whether it holds, and the observation.
    pub(crate) fn claim(name: &str, holds: bool, seen: &str) -> Self {
        Self {
            value: Value::Text(seen.to_owned()),
            must: Some(Bound::Holds),
            reached: holds,
            ..Self::measured(name, 0.0, "")
        }
    }

    /// An observation without a bound.
    pub(crate) fn noted(name: &str, seen: &str) -> Self {
        Self {
            value: Value::Text(seen.to_owned()),
            ..Self::measured(name, 0.0, "")
        }
    }

    /// Adds the peer's value, in the same unit.
    pub(crate) fn against(mut self, peer: f64) -> Self {
        self.peer = Some(peer);
        self.ratio = match self.value {
            Value::Number(value) if peer != 0.0 => Some(value / peer),
            Value::Number(_) | Value::Text(_) => None,
        };
        self
    }

    /// Sets the bound and compares the value with it. A bound on the ratio is missed without a peer.
    pub(crate) fn must(mut self, bound: Bound) -> Self {
        let value = if let Value::Number(value) = self.value {
            Some(value)
        } else {
            None
        };
        self.must = Some(bound);
        self.reached = match bound {
            Bound::AtLeast(least) => value.is_some_and(|value| value >= least),
            Bound::AtMost(most) => value.is_some_and(|value| value <= most),
            Bound::RatioAtMost(most) => self.ratio.is_some_and(|ratio| ratio <= most),
            Bound::Holds => self.reached,
        };
        self
    }

    fn cells(&self) -> [String; 6] {
        let value = match &self.value {
            Value::Number(value) => format!("{value:.3} {}", self.unit).trim_end().to_owned(),
            Value::Text(text) => text.clone(),
        };
        let peer = self
            .peer
            .map_or_else(String::new, |peer| format!("{peer:.3}"));
        let ratio = self
            .ratio
            .map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let must = self
            .must
            .as_ref()
            .map_or_else(String::new, Bound::to_string);
        let mark = if self.reached { "✓" } else { "✗" };
        [mark.to_owned(), self.name.clone(), value, peer, ratio, must]
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::RatioAtMost(most) => write!(f, "ratio ≤ {most}"),
            Self::Holds => f.write_str("holds"),
        }
    }
}

/// All rows of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Report {
    /// Which demo or bench.
    pub(crate) name: String,
    /// The rows in the order in which they were made.
    pub(crate) rows: Vec<Row>,
}

impl Report {
    /// A report without rows.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Writes the JSON file, where one is asked for, and fails when a row did not reach what it must.
    pub(crate) fn finish(&self, json: Option<&Path>) -> anyhow::Result<()> {
        if let Some(path) = json {
            let text = serde_json::to_string_pretty(self).context("failed to write the report")?;
            fs::write(path, text + "\n")
                .with_context(|| format!("failed to write {}", path.display()))?;
        }
        let failed: Vec<_> = self
            .rows
            .iter()
            .filter(|row| !row.reached)
            .map(|row| row.name.as_str())
            .collect();
        if failed.is_empty() {
            return Ok(());
        }
        bail!("{}: not reached: {}", self.name, failed.join("; "))
    }
}

/// The table for people; columns are as wide as their widest cell.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["", self.name.as_str(), "value", "peer", "ratio", "must"].map(str::to_owned);
        let rows: Vec<_> = std::iter::once(head)
            .chain(self.rows.iter().map(Row::cells))
            .collect();
        let widths: [usize; 6] = std::array::from_fn(|column| {
            rows.iter()
                .map(|cells| cells[column].chars().count())
                .max()
                .unwrap_or(0)
        });
        for cells in &rows {
            let line: Vec<_> = cells
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
