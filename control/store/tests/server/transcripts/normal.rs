//! The output of etcdctl without what differs by server and by run.

/// Removes the client's log lines, and names IDs, times, terms and the endpoint.
pub(super) fn normal(output: &str, endpoint: &str) -> String {
    let text = output.replace(endpoint, "<endpoint>");
    let lines = text.lines().filter(|line| !line.starts_with("{\"level\":"));
    lines.map(|line| line_without_ids(line) + "\n").collect()
}

fn line_without_ids(line: &str) -> String {
    let mut text = line.to_owned();
    for (before, name) in [
        ("\"raft_term\":", "<term>"),
        ("\"RaftTerm\" : ", "<term>"),
        ("remaining(", "<time>"),
    ] {
        text = number_after(&text, before, name);
    }
    if let Some((before, _)) = text.split_once("took = ") {
        text = format!("{before}took = <time>");
    }
    without_ids(&with_sorted_keys(&text))
}

/// Sorts the keys of a lease: etcd has no order of them.
fn with_sorted_keys(line: &str) -> String {
    let Some((start, keys)) = line.split_once("attached keys([") else {
        return line.into();
    };
    let (keys, end) = keys.split_once(']').unwrap_or((keys, ""));
    let mut keys: Vec<&str> = keys.split(' ').collect();
    keys.sort_unstable();
    format!("{start}attached keys([{}]{end}", keys.join(" "))
}

/// Replaces the number (and a unit of seconds) after `before`.
fn number_after(text: &str, before: &str, name: &str) -> String {
    match text.split_once(before) {
        None => text.into(),
        Some((start, rest)) => {
            let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
            let rest = rest.strip_prefix('s').unwrap_or(rest);
            format!("{start}{before}{name}{rest}")
        }
    }
}

/// Replaces words that are IDs: 15 to 20 decimal digits, or 13 to 16 hexadecimal ones.
fn without_ids(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let length = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(length.max(1).min(rest.len()));
        let decimal = word.bytes().all(|byte| byte.is_ascii_digit());
        let hexadecimal = word
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_id = decimal && (15..=20).contains(&word.len())
            || hexadecimal && (13..=16).contains(&word.len());
        result.push_str(if is_id { "<id>" } else { word });
        rest = after;
    }
    result
}

#[test]
fn ids_and_times_are_named() {
    let output = "{\"level\":\"warn\"}\nlease 694d8a1b2c3d4e5f granted with TTL(60s), remaining(59s)\n[::1]:1 took = 3ms\n";
    let normalized =
        "lease <id> granted with TTL(60s), remaining(<time>)\n<endpoint> took = <time>\n";
    assert_eq!(normal(output, "[::1]:1"), normalized);
    assert_eq!(without_ids("put key 12"), "put key 12");
    let keys = "remaining(1s), attached keys([b a c])";
    assert_eq!(
        with_sorted_keys(keys),
        "remaining(1s), attached keys([a b c])"
    );
}
