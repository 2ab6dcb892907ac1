//! Rows of the report: lines of JSON on standard output, which `cargo xtask bench store` collects. Progress goes to standard error.

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::sample::{median, ratio};

/// The bound of a row.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Bound {
    /// Least value, in the row's unit.
    AtLeast(f64),
    /// Largest value, in the row's unit.
    AtMost(f64),
    /// Largest ratio of the value and the peer's.
    RatioAtMost(f64),
}

/// The result of a row.
#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Number(f64),
    Text(&'static str),
}

/// One measurement.
#[derive(Serialize)]
pub struct Row {
    name: String,
    value: Value,
    unit: &'static str,
    peer: Option<f64>,
    /// The median of the rounds' ratios, where there are rounds.
    ratio: Option<f64>,
    must: Option<Bound>,
}

impl Row {
    /// A figure without a bound.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            value: Value::Number(value),
            unit,
            peer: None,
            ratio: None,
            must: None,
        }
    }

    /// A figure of the store's samples and of the peer's: the medians, and the median of the rounds' ratios.
    pub fn compared<T>(
        name: impl Into<String>,
        unit: &'static str,
        [own, peer]: [&[T]; 2],
        figure: impl Fn(&T) -> f64,
    ) -> Self {
        Self {
            ratio: Some(ratio([own, peer], &figure)),
            ..Self::new(name, median(own, &figure), unit).against(median(peer, &figure))
        }
    }

    /// An observation.
    pub fn noted(name: &str, seen: &'static str) -> Self {
        Self {
            value: Value::Text(seen),
            ..Self::new(name, 0.0, "")
        }
    }

    /// Adds the figure of the server with which the row compares, in the same unit.
    #[must_use]
    pub fn against(self, peer: f64) -> Self {
        Self {
            peer: Some(peer),
            ..self
        }
    }

    /// Adds the bound.
    #[must_use]
    pub fn must(self, bound: Bound) -> Self {
        Self {
            must: Some(bound),
            ..self
        }
    }

    /// Prints the row.
    pub fn print(&self) -> Result<()> {
        print(&serde_json::to_string(self).context("failed to encode a row")?)
    }
}

/// Prints a line on standard output.
pub fn print(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .context("failed to write to standard output")
}

/// Prints a line of progress. A closed standard error is no reason to stop.
pub fn say(line: &str) {
    let _closed = writeln!(std::io::stderr(), "{line}");
}
