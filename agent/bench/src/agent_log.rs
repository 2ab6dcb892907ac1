//! Times in the agent's log, which is JSON: one object a line. Pure.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::Value;

/// The messages of a start: a kind is listed, and all Services are in force.
const LISTED: &str = "listed";
const PROGRAMMED: &str = "services are programmed";

/// The time from the last byte of the lists to the moment at which all Services are in force; none: not yet.
pub(crate) fn programming(log: &str) -> Result<Option<Duration>> {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let lines: Vec<Value> = lines.collect();
    let at = |wanted: &str| {
        let mut lines = lines.iter().rev();
        lines.find(|line| line["fields"]["message"] == wanted)
    };
    let Some(programmed) = at(PROGRAMMED) else {
        return Ok(None);
    };
    let listed = at(LISTED).context("the agent's log does not say when the lists were complete")?;
    let took = time(programmed)?.duration_since(time(listed)?);
    let took = took.try_into();
    took.map(Some)
        .context("the agent has listed objects again after Services were in force")
}

fn time(line: &Value) -> Result<Timestamp> {
    let text = line["timestamp"].as_str().unwrap_or_default();
    text.parse()
        .with_context(|| format!("{text:?} in the agent's log is no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_from_the_last_list_on() {
        let line = |second: &str, message: &str| {
            format!(
                r#"{{"timestamp":"2026-11-26T10:00:{second}Z","level":"INFO","fields":{{"message":"{message}"}}}}"#
            )
        };
        let listed = [line("01.0", LISTED), line("02.000250", LISTED)].join("\n");
        assert_eq!(programming(&listed).unwrap(), None);
        let log = format!("not JSON\n{listed}\n{}", line("03.5", PROGRAMMED));
        let expected = Duration::from_micros(1_499_750);
        assert_eq!(programming(&log).unwrap(), Some(expected));
        assert!(programming(&line("03.5", PROGRAMMED)).is_err());
    }
}
