//! How much the pods of an app write, from the list of their logs.

use serde_json::{Value, json};

use crate::api::age::of_seconds;

/// Pods that are listed, those that write most.
const PODS_MAX: usize = 5;
/// A log of which lines were removed and whose kept ones cover less than this, in seconds, is too short to be of use.
const SHORT: u64 = 3_600;

/// Adds the topic of its logs to an explanation. `only` is the pod that it is about; none: an app.
pub(super) fn add(explanation: &mut Value, logs: &Value, only: Option<&str>) {
    let all = logs["items"].as_array().into_iter().flatten();
    let mut all: Vec<(f64, String)> = all
        .filter(|log| only.is_none_or(|pod| log["pod"] == pod))
        .filter_map(line)
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let more = all.len().saturating_sub(PODS_MAX);
    let mut lines: Vec<String> = all
        .into_iter()
        .take(PODS_MAX)
        .map(|(_, line)| line)
        .collect();
    lines.extend((more > 0).then(|| format!("and {more} more pods that write less")));
    if let Some(topics) = explanation["topics"]
        .as_array_mut()
        .filter(|_| !lines.is_empty())
    {
        topics.push(json!({"name": "log", "lines": lines}));
    }
}

/// The rate of a log, and its line.
fn line(log: &Value) -> Option<(f64, String)> {
    let bytes = log["bytes"].as_f64()?;
    let seconds = log["ageSeconds"].as_u64()?;
    let rate = bytes / f64::from(u32::try_from(seconds.max(1)).unwrap_or(u32::MAX));
    let pod = log["pod"].as_str()?;
    let age = of_seconds(seconds);
    let kept = format!(
        "{pod}: {} of the last {age}, {}/s",
        amount(bytes),
        amount(rate)
    );
    let removed = log["removedBytes"]
        .as_f64()
        .filter(|removed| *removed > 0.0 && seconds < SHORT);
    let line = match removed {
        Some(removed) => format!(
            "{kept}: it fills its log; about {} before that were removed (--log-bytes-per-pod of dormouse-agent)",
            amount(removed)
        ),
        None => kept,
    };
    Some((rate, line))
}

/// Bytes in the largest binary unit of which there is one, with one decimal.
fn amount(bytes: f64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1_024.0 {
        return format!("{bytes:.0} B");
    }
    let mut amount = bytes / 1_024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while amount >= 1_024.0
        && let Some(larger) = units.next()
    {
        amount /= 1_024.0;
        unit = Some(larger);
    }
    format!("{amount:.1} {}", unit.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::explain;

    fn lines(logs: &Value, only: Option<&str>) -> Vec<String> {
        let mut explanation = json!({"topics": []});
        add(&mut explanation, logs, only);
        explain::tests::lines(&explanation, "log")
    }

    #[test]
    fn the_pod_that_writes_most_is_first_with_what_was_removed() {
        let logs = json!({"items": [
            {"pod": "web-1", "bytes": 900, "removedBytes": 0, "ageSeconds": 30},
            {"pod": "web-2", "bytes": 10 << 20, "removedBytes": 2_u64 << 30, "ageSeconds": 5},
            {"pod": "web-3", "bytes": 0, "removedBytes": 0, "ageSeconds": null},
        ]});
        let full = "web-2: 10.0 MiB of the last 5s, 2.0 MiB/s: it fills its log; about 2.0 GiB before that were removed \
                    (--log-bytes-per-pod of dormouse-agent)";
        assert_eq!(
            lines(&logs, None),
            [full, "web-1: 900 B of the last 30s, 30 B/s"]
        );
        assert_eq!(
            lines(&logs, Some("web-1")),
            ["web-1: 900 B of the last 30s, 30 B/s"]
        );
        assert!(lines(&json!({}), None).is_empty());
    }

    #[test]
    fn an_old_log_of_which_lines_were_removed_is_not_called_full() {
        let day = 24 * 3_600;
        let logs = json!({"items": [
            {"pod": "web-1", "bytes": 10 << 20, "removedBytes": 1 << 20, "ageSeconds": 2 * day},
        ]});
        assert_eq!(
            lines(&logs, None),
            ["web-1: 10.0 MiB of the last 2d, 61 B/s"]
        );
    }
}
