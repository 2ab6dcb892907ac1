//! The last lines of a pod's output, for the reason of its end.

use std::time::Duration;

use dormouse_agent_logs::{Folder, tail};

/// Limit of the lines.
const LINES_MAX: usize = 10;
/// Limit of a line, in characters; the rest is cut off.
const LINE_MAX: usize = 200;
/// Longest wait for the writer of the logs. A process that the pod has left behind keeps the log open.
const PATIENCE: Duration = Duration::from_secs(1);

/// The last lines of a pod's output as far as it was written; empty if it cannot be read.
pub(super) async fn last_lines(logs: Folder, uid: &str) -> Vec<String> {
    let _ = tokio::time::timeout(PATIENCE, logs.ended(uid)).await;
    let uid = uid.to_owned();
    let read = move || tail(&logs, &uid, LINES_MAX as u64);
    let read = tokio::task::spawn_blocking(read).await;
    read.ok()
        .and_then(Result::ok)
        .as_deref()
        .map(lines)
        .unwrap_or_default()
}

fn lines(text: &str) -> Vec<String> {
    let shown = |line: &str| -> String {
        let visible = line.chars().filter(|one| !one.is_control() || *one == '\t');
        visible.take(LINE_MAX).collect()
    };
    let all: Vec<String> = text.lines().map(shown).collect();
    all[all.len().saturating_sub(LINES_MAX)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_have_no_control_characters() {
        assert_eq!(lines(""), Vec::<String>::new());
        assert_eq!(lines("one\n\u{1b}[31mtwo"), ["one", "[31mtwo"]);
        assert_eq!(lines(&"é".repeat(3_000)), ["é".repeat(LINE_MAX)]);
        assert_eq!(lines(&"x\n".repeat(30)).len(), LINES_MAX);
    }
}
