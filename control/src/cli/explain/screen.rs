//! An explanation as text.

use std::io;

use dormouse_command::{Columns, wrap};
use serde_json::Value;

use crate::api::age;

/// Spaces after the longest topic name.
const GAP: usize = 3;
/// Narrowest column of topic names, in characters.
const MARGIN_MIN: usize = 11;

/// The subject, if it is short, and topic names in the left column, their lines aligned in the right one, wrapped to the screen's width; then the last decisions as a
/// table, and the meaning of its terms.
pub(super) fn render(explanation: &Value, screen: Option<usize>) -> String {
    let subject = string(&explanation["subject"]);
    let subject = subject
        .split_once('/')
        .map_or(subject.as_str(), |(_, rest)| rest);
    let summary = string(&explanation["summary"]);
    let mut topics = Vec::new();
    for topic in items(&explanation["topics"]) {
        let lines = items(&topic["lines"]).iter().map(string).collect();
        topics.push((string(&topic["name"]), lines));
    }
    let mut text = String::new();
    let column = subject.chars().count() + GAP;
    if screen.is_some_and(|screen| column > screen / 2) {
        for line in wrap(&format!("{subject}   {summary}"), screen) {
            text = text + &line + "\n";
        }
    } else {
        topics.insert(0, (subject.to_owned(), vec![summary]));
    }
    text += &paragraphs(&topics, screen);
    let decisions = items(&explanation["decisions"]);
    if decisions.is_empty() {
        return text;
    }
    text.push('\n');
    text.push_str(&table(decisions, screen));
    text.push('\n');
    let terms = items(&explanation["terms"]).iter();
    let terms: Vec<_> = terms
        .map(|term| (string(&term["name"]), vec![string(&term["meaning"])]))
        .collect();
    text + &paragraphs(&terms, screen)
}

fn paragraphs(paragraphs: &[(String, Vec<String>)], screen: Option<usize>) -> String {
    let widths = paragraphs
        .iter()
        .map(|(name, _)| name.chars().count() + GAP);
    let margin = widths.max().unwrap_or(0).max(MARGIN_MIN);
    let width = screen.map(|screen| screen.saturating_sub(margin));
    let mut text = String::new();
    for (name, lines) in paragraphs {
        let lines = lines.iter().flat_map(|line| wrap(line, width));
        for (index, line) in lines.enumerate() {
            let name = if index == 0 { name.as_str() } else { "" };
            // A word that is wider than the right column begins further to the left.
            let room = screen.map_or(margin, |screen| screen.saturating_sub(line.chars().count()));
            let indent = room.min(margin);
            if name.chars().count() >= indent && indent < margin && !name.is_empty() {
                text = text + name + "\n" + &" ".repeat(indent) + &line;
            } else {
                text.push_str(format!("{name:<indent$}{line}").trim_end());
            }
            text.push('\n');
        }
    }
    text
}

/// The headings of decisions, and the fields that they show.
const COLUMNS: [(&str, &str); 7] = [
    ("READY", "ready"),
    ("STABLE", "stable"),
    ("PANIC", "panic"),
    ("EBC", "excessBurstCapacity"),
    ("WANT", "wanted"),
    ("MODE", "mode"),
    ("REASON", "reason"),
];

fn table(decisions: &[Value], screen: Option<usize>) -> String {
    let headings = ["DECIDED", "FOR"].into_iter();
    let headings = headings.chain(COLUMNS.map(|(heading, _)| heading));
    let mut rows = vec![headings.map(str::to_owned).collect::<Vec<_>>()];
    for decision in decisions {
        let age = |field: &str| age::of_seconds(decision[field].as_u64().unwrap_or(0));
        let times = [format!("{} ago", age("ageSeconds")), age("lastedSeconds")];
        let fields = COLUMNS.map(|(_, field)| cell(&decision[field]));
        rows.push(times.into_iter().chain(fields).collect());
    }
    let mut out = io::Cursor::new(Vec::new());
    // A buffer in memory takes every write.
    drop(Columns::for_width(screen).write_all(&mut out, &rows));
    String::from_utf8_lossy(out.get_ref()).into_owned()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn cell(value: &Value) -> String {
    match value.as_f64() {
        Some(number) => number.to_string(),
        None => string(value).to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn topics_are_in_the_left_column_and_their_lines_are_aligned() {
        let explanation = json!({
            "subject": "app/shop/web", "summary": "awake, 2 ready of 2 wanted",
            "topics": [{"name": "scale", "lines": ["want 2 = min", "no panic"]}, {"name": "mode", "lines": ["proxy"]}],
        });
        let want = "\
shop/web   awake, 2 ready of 2 wanted
scale      want 2 = min
           no panic
mode       proxy
";
        assert_eq!(render(&explanation, None), want);
        let narrow = "\
shop/web   awake, 2 ready of 2
           wanted
scale      want 2 = min
           no panic
mode       proxy
";
        assert_eq!(render(&explanation, Some(31)), narrow);
    }

    #[test]
    fn a_word_that_is_wider_than_its_column_fits_the_screen() {
        let word = "newsletter-archive-11-7c9f21a:";
        let explanation = json!({
            "subject": "app/shop/web", "summary": "awake",
            "topics": [{"name": "pods", "lines": [format!("{word} starting")]}, {"name": "scales at", "lines": ["newsletter-archive-11-7c9f21a-000"]}],
        });
        let want = "\
shop/web    awake
pods      newsletter-archive-11-7c9f21a:
            starting
scales at
       newsletter-archive-11-7c9f21a-000
";
        assert_eq!(render(&explanation, Some(40)), want);
    }

    #[test]
    fn decisions_are_a_table_below_the_topics_and_their_terms_follow() {
        let explanation = json!({
            "subject": "app/shop/web", "summary": "awake",
            "decisions": [
                {"ageSeconds": 4, "lastedSeconds": 0, "ready": 1, "stable": 3.4, "panic": 20.0, "excessBurstCapacity": -215,
                    "wanted": 3, "mode": "Proxy", "reason": "panic"},
                {"ageSeconds": 190, "lastedSeconds": 186, "ready": 1, "stable": 1.0, "panic": 1.0, "excessBurstCapacity": -112,
                    "wanted": 1, "mode": "Proxy", "reason": "load"}],
            "terms": [{"name": "READY", "meaning": "ready pods"}],
        });
        let want = "\
shop/web   awake

DECIDED     FOR    READY   STABLE   PANIC   EBC    WANT   MODE    REASON
4s ago      0s     1       3.4      20      -215   3      proxy   panic
3m10s ago   3m6s   1       1        1       -112   1      proxy   load

READY      ready pods
";
        assert_eq!(render(&explanation, Some(80)), want);
        let narrow = render(&explanation, Some(40));
        assert!(narrow.lines().all(|line| line.len() <= 40), "{narrow}");
    }
}
