//! The chart of one wake: a line per stage, with a bar from the stage's start to its end on a time axis from the first
//! packet to the end of the wake.

use dormouse_command::wrap;
use serde_json::Value;

/// Length of the time axis in characters, on a screen that is wide enough, and on any.
const BAR_WIDTHS: (usize, usize) = (46, 8);
/// Width of the numbers beside the time axis and of the mark at its end, in characters.
const NUMBERS_WIDTH: usize = 32;
/// The stages that follow each other; the first packet and the first parked request come in either order before them.
const CHAIN: [&str; 6] = ["decide", "place", "wire", "start", "ready", "first byte"];

/// One stage of a wake.
pub(super) struct Stage {
    pub(super) name: String,
    /// Its end, in milliseconds since the first packet; none: it was not recorded, or the wake ended before it was over.
    pub(super) at_ms: Option<f64>,
    /// Its duration in milliseconds; none: its begin is not known.
    pub(super) took_ms: Option<f64>,
}

/// The start of a wake, in nanoseconds since boot.
pub(super) fn start_ns(wake: &Value) -> u64 {
    let stages = wake["stages"].as_array().into_iter().flatten();
    stages
        .filter_map(|stage| stage["atNs"].as_u64())
        .min()
        .unwrap_or(0)
}

/// The wake as text, wrapped to the screen's width.
pub(super) fn render(wake: &Value, screen: Option<usize>) -> String {
    let room = screen.map_or(BAR_WIDTHS.0, |screen| screen.saturating_sub(NUMBERS_WIDTH));
    let bar_width = room.clamp(BAR_WIDTHS.1, BAR_WIDTHS.0);
    let stages = stages(wake);
    let last = stages
        .iter()
        .filter_map(|stage| stage.at_ms)
        .reduce(f64::max);
    let total = wake["endedMs"].as_f64().or(last).unwrap_or_default();
    let app = wake["app"].as_str().unwrap_or("?");
    let first = part(wake, "seenNode", |node| {
        format!("   first packet at {node}")
    });
    let pod = part(wake, "pod", |pod| {
        format!("   pod {pod} on {}", wake["node"].as_str().unwrap_or("?"))
    });
    let heading = format!("wake {app}{first}{pod}   {}", end(wake, &stages));
    let rows = stages.iter().map(|stage| row(stage, total, bar_width));
    let reason = wake["reason"]
        .as_str()
        .map(|reason| format!("reason: {reason}"));
    let next = format!("{}next: dormouse explain app {app}", share(&stages, total));
    let mut lines = wrap(&heading, screen);
    lines.push("STAGE         AT ms   TOOK ms".to_owned());
    lines.extend(rows);
    lines.extend(reason.iter().flat_map(|reason| wrap(reason, screen)));
    lines.extend(wrap(&next, screen));
    lines.join("\n") + "\n"
}

/// The text of a field; empty if the wake does not have it.
fn part(wake: &Value, name: &str, text: impl Fn(&str) -> String) -> String {
    wake[name].as_str().map(text).unwrap_or_default()
}

/// How the wake ended, and where.
pub(super) fn end(wake: &Value, stages: &[Stage]) -> String {
    let ms = wake["endedMs"].as_f64().unwrap_or_default();
    let first_byte = stages.iter().find(|stage| stage.name == "first byte");
    let first_byte = first_byte.and_then(|stage| stage.at_ms);
    let how = match wake["outcome"].as_str() {
        Some("failed") => "failed",
        Some("timed_out") => "timed out",
        Some("abandoned") => "abandoned by its clients",
        Some("refused") => "refused by a limit",
        _ => {
            return match first_byte {
                Some(at) => format!("first byte after {at:.1} ms"),
                None => "not answered yet".to_owned(),
            };
        }
    };
    let place = wake["endedIn"].as_str();
    let place = place.map_or_else(String::new, |stage| format!(" in {stage}"));
    let later = first_byte.map_or_else(String::new, |at| {
        format!("; a later request was answered after {at:.1} ms")
    });
    format!("{how}{place} after {ms:.1} ms{later}")
}

fn row(stage: &Stage, total: f64, bar_width: usize) -> String {
    let at = match (stage.at_ms, stage.took_ms) {
        (Some(at), _) => format!("{at:.1}"),
        (None, Some(_)) => "-".to_owned(),
        (None, None) => return format!("{:<11}{:>8}", stage.name, "missing"),
    };
    let took = stage
        .took_ms
        .map_or_else(|| "?".to_owned(), |took| format!("{took:.1}"));
    let line = format!(
        "{:<11}{at:>8}{took:>10}  {}",
        stage.name,
        bar(stage, total, bar_width)
    );
    line.trim_end().to_owned()
}

/// The stage with the longest known duration.
pub(super) fn slowest(stages: &[Stage]) -> Option<&Stage> {
    let known = stages.iter().filter(|stage| stage.took_ms.is_some());
    known.max_by(|a, b| {
        a.took_ms
            .unwrap_or(0.0)
            .total_cmp(&b.took_ms.unwrap_or(0.0))
    })
}

/// The slowest stage with its share of the wake, before the next command.
fn share(stages: &[Stage], total: f64) -> String {
    let Some(slowest) = slowest(stages) else {
        return String::new();
    };
    let share = if total > 0.0 {
        slowest.took_ms.unwrap_or(0.0) / total * 100.0
    } else {
        0.0
    };
    format!("slowest {}: {share:.0}% of this wake      ", slowest.name)
}

/// The recorded stages in order of time, each missing one before that which follows it.
pub(super) fn stages(wake: &Value) -> Vec<Stage> {
    let all = wake["stages"].as_array().into_iter().flatten();
    let timed =
        all.filter_map(|stage| Some((stage["name"].as_str()?.to_owned(), stage["ms"].as_f64()?)));
    let mut timed: Vec<(String, f64)> = timed.collect();
    timed.sort_by(|a, b| a.1.total_cmp(&b.1));
    let missing = wake["missing"].as_array().into_iter().flatten();
    let missing: Vec<&str> = missing.filter_map(Value::as_str).collect();
    let mut stages = Vec::new();
    let mut before = 0.0;
    let mut shown = Vec::new();
    for (name, at_ms) in timed {
        let gap = gap_before(&name, &missing);
        for name in gap.iter().filter(|name| !shown.contains(*name)) {
            stages.push(absent(name));
        }
        let took_ms = if gap.is_empty() {
            Some(at_ms - before)
        } else {
            begin_ms(wake, &name).map(|begin| at_ms - begin)
        };
        shown.extend(gap);
        stages.push(Stage {
            name,
            at_ms: Some(at_ms),
            took_ms,
        });
        before = at_ms;
    }
    stages.extend(unfinished(wake, &stages, before));
    let unseen = missing.iter().filter(|name| !CHAIN.contains(name));
    let unseen: Vec<Stage> = unseen.map(|name| absent(name)).collect();
    unseen.into_iter().chain(stages).collect()
}

/// The stage in which the wake ended without a response, if that stage was not over. `before` is the end of the last one.
fn unfinished(wake: &Value, stages: &[Stage], before: f64) -> Option<Stage> {
    let name = wake["endedIn"].as_str()?;
    let took = wake["endedMs"].as_f64()? - before;
    let is_shown = stages.iter().any(|stage| stage.name == name);
    (!is_shown && took > 0.0).then(|| Stage {
        name: name.to_owned(),
        at_ms: None,
        took_ms: Some(took),
    })
}

fn absent(name: &str) -> Stage {
    Stage {
        name: name.to_owned(),
        at_ms: None,
        took_ms: None,
    }
}

/// The missing stages directly before this one: its begin is not known.
fn gap_before<'a>(name: &str, missing: &[&'a str]) -> Vec<&'a str> {
    let position = CHAIN.iter().position(|stage| *stage == name).unwrap_or(0);
    let before = CHAIN[..position].iter().rev();
    let gap = before.map_while(|stage| missing.iter().find(|name| *name == stage).copied());
    let mut gap: Vec<&str> = gap.collect();
    gap.reverse();
    gap
}

/// The begin of a stage that is recorded besides the end of the one before.
fn begin_ms(wake: &Value, name: &str) -> Option<f64> {
    let begin_ns = wake["wireBeginNs"].as_u64().filter(|_| name == "wire")?;
    Some(begin_ns.saturating_sub(start_ns(wake)) as f64 / 1e6)
}

/// `=` for each column that the stage lasted, `|` if it was shorter than a column.
fn bar(stage: &Stage, total_ms: f64, width: usize) -> String {
    if total_ms <= 0.0 {
        return "|".to_owned();
    }
    let column = |ms: f64| column(ms / total_ms, width);
    let at_ms = stage.at_ms.unwrap_or(total_ms);
    let (from, to) = (
        column(at_ms - stage.took_ms.unwrap_or_default()),
        column(at_ms),
    );
    let mark = if to > from {
        "=".repeat(to - from)
    } else {
        "|".to_owned()
    };
    format!("{}{mark}", " ".repeat(from))
}

/// The column at this share of a time axis of this width.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share clamped between 0 and 1, times the width, fits any integer"
)]
fn column(share: f64, width: usize) -> usize {
    (share.clamp(0.0, 1.0) * width as f64).round() as usize
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stages_are_drawn_as_bars_in_order_of_time() {
        let stage = |name: &str, ms: f64| json!({"name": name, "ms": ms, "atNs": 1});
        let wake = json!({
            "app": "shop/web", "node": "node-2", "pod": "web-7c9f", "seenNode": "node-1",
            "stages": [stage("see", 0.0), stage("park", 0.4), stage("decide", 0.6), stage("place", 4.2),
                stage("start", 80.0), stage("wire", 25.0), stage("ready", 99.0), stage("first byte", 100.0)],
        });
        let want = "\
wake shop/web   first packet at node-1   pod web-7c9f on node-2   first byte after 100.0 ms
STAGE         AT ms   TOOK ms
see             0.0       0.0  |
park            0.4       0.4  |
decide          0.6       0.2  |
place           4.2       3.6  ==
wire           25.0      20.8    ==========
start          80.0      55.0              =========================
ready          99.0      19.0                                       =========
first byte    100.0       1.0                                                |
slowest start: 55% of this wake      next: dormouse explain app shop/web
";
        assert_eq!(render(&wake, None), want);
        let narrow = render(&wake, Some(40));
        assert!(
            narrow.starts_with("wake shop/web   first packet at node-1\npod web-7c9f"),
            "{narrow}"
        );
        assert!(narrow.lines().all(|line| line.len() <= 40), "{narrow}");
    }

    #[test]
    fn a_missing_stage_is_shown_missing_and_not_added_to_the_next() {
        let stage = |name: &str, ms: u32| json!({"name": name, "ms": ms, "atNs": u64::from(ms) * 1_000_000 + 1_000_000});
        let wake = json!({
            "app": "shop/web", "node": "node-2", "pod": "web-7c9f", "missing": ["see", "place", "start"],
            "wireBeginNs": 9_991_000_000_u64,
            "stages": [stage("park", 0), stage("decide", 1), stage("wire", 10_000), stage("ready", 10_010),
                stage("first byte", 10_015)],
            "outcome": "answered", "endedMs": 10_015.0,
        });
        let want = "\
wake shop/web   pod web-7c9f on node-2   first byte after 10015.0 ms
STAGE         AT ms   TOOK ms
see         missing
park            0.0       0.0  |
decide          1.0       1.0  |
place       missing
wire        10000.0      10.0                                                |
start       missing
ready       10010.0         ?                                                |
first byte  10015.0       5.0                                                |
slowest wire: 0% of this wake      next: dormouse explain app shop/web
";
        assert_eq!(render(&wake, None), want);
    }

    #[test]
    fn a_wake_that_was_not_answered_shows_how_it_ended_and_where() {
        let stage = |name: &str, ms: f64| json!({"name": name, "ms": ms, "atNs": 1});
        let wake = json!({
            "app": "shop/web", "node": "node-2", "pod": "web-7c9f", "seenNode": "node-1",
            "stages": [stage("see", 0.0), stage("park", 0.4), stage("decide", 0.6), stage("place", 4.2),
                stage("wire", 25.0), stage("start", 26.0)],
            "outcome": "timed_out", "endedMs": 30_000.0, "endedIn": "ready",
            "reason": "NotListening: nothing listens on port 8081; the process listens on 8080",
        });
        let text = render(&wake, None);
        assert!(
            text.starts_with("wake shop/web   first packet at node-1   pod web-7c9f on node-2   timed out in ready after 30000.0 ms\n"),
            "{text}"
        );
        assert!(!text.contains("first byte"), "{text}");
        assert!(
            text.contains("\nready             -   29974.0  ====="),
            "{text}"
        );
        assert!(
            text.contains("\nslowest ready: 100% of this wake"),
            "{text}"
        );
        assert!(text.contains("\nreason: NotListening: nothing listens on port 8081; the process listens on 8080\n"), "{text}");
        let open = json!({"stages": [stage("see", 0.0), stage("decide", 0.6)]});
        assert!(render(&open, None).contains("not answered yet"));
    }

    #[test]
    fn a_wake_with_missing_fields_is_drawn_without_a_panic() {
        assert!(render(&json!({}), None).starts_with("wake ?"));
        assert!(
            render(
                &json!({"stages": [{"name": "see", "ms": 0.0}, {"ms": 1}, 7]}),
                None
            )
            .contains("see")
        );
    }
}
