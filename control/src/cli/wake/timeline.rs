//! The chart of one wake: a line per stage, with a bar from the stage's start to its end on a time axis from the first
//! packet to the first byte.

use dormouse_command::wrap;
use serde_json::Value;

/// Length of the time axis in characters, on a screen that is wide enough, and on any.
const BAR_WIDTHS: (usize, usize) = (46, 8);
/// Width of the numbers beside the time axis and of the mark at its end, in characters.
const NUMBERS_WIDTH: usize = 32;

/// One stage of a wake.
struct Stage {
    name: String,
    /// Its end, in milliseconds since the first packet.
    at_ms: f64,
    /// Milliseconds since the end of the stage before.
    took_ms: f64,
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
    let total = stages.last().map_or(0.0, |stage| stage.at_ms);
    let field = |name: &str| wake[name].as_str().unwrap_or("?");
    let heading = format!(
        "wake {}   first packet at {}   pod {} on {}   first byte after {total:.1} ms",
        field("app"),
        field("seenNode"),
        field("pod"),
        field("node"),
    );
    let mut text = wrap(&heading, screen).join("\n");
    text.push_str("\nSTAGE         AT ms   TOOK ms\n");
    for stage in &stages {
        let line = format!(
            "{:<11}{:>8.1}{:>10.1}  {}",
            stage.name,
            stage.at_ms,
            stage.took_ms,
            bar(stage, total, bar_width)
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if let Some(slowest) = stages.iter().max_by(|a, b| a.took_ms.total_cmp(&b.took_ms)) {
        let share = if total > 0.0 {
            slowest.took_ms / total * 100.0
        } else {
            0.0
        };
        let name = &slowest.name;
        let slowest = format!(
            "slowest {name}: {share:.0}% of this wake      next: dormouse explain app {}",
            field("app")
        );
        text.push_str(&wrap(&slowest, screen).join("\n"));
        text.push('\n');
    }
    text
}

/// The stages in order of time.
fn stages(wake: &Value) -> Vec<Stage> {
    let all = wake["stages"].as_array().into_iter().flatten();
    let timed =
        all.filter_map(|stage| Some((stage["name"].as_str()?.to_owned(), stage["ms"].as_f64()?)));
    let mut timed: Vec<(String, f64)> = timed.collect();
    timed.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut before = 0.0;
    let since = |(name, at_ms): (String, f64)| {
        let took_ms = at_ms - before;
        before = at_ms;
        Stage {
            name,
            at_ms,
            took_ms,
        }
    };
    timed.into_iter().map(since).collect()
}

/// `=` for each column that the stage lasted, `|` if it was shorter than a column.
fn bar(stage: &Stage, total_ms: f64, width: usize) -> String {
    if total_ms <= 0.0 {
        return "|".to_owned();
    }
    let column = |ms: f64| column(ms / total_ms, width);
    let (from, to) = (column(stage.at_ms - stage.took_ms), column(stage.at_ms));
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
