//! Roles that cannot start: the reason is the last line of their log, which is JSON in a pipe and text on a terminal.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A role with an acting prefix that is not local to this host.
fn words(role: &str) -> [&str; 4] {
    let dormouse = env!("CARGO_BIN_EXE_dormouse");
    [dormouse, role, "--acting-prefix", "2001:db8:ffff::/96"]
}

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command.output().unwrap()
}

#[test]
fn an_acting_prefix_that_is_not_local_is_refused_and_log_lines_in_a_pipe_are_json() {
    for role in ["up", "activator"] {
        let Output { status, stderr, .. } = run(&words(role));
        let text = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{text}");
        let line = text.lines().last().unwrap();
        let lines = text.lines().map(serde_json::from_str);
        let lines: Result<Vec<Value>, _> = lines.collect();
        let line = lines.expect(line).pop().unwrap();
        let message = line["fields"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("--acting-prefix 2001:db8:ffff::/96 is not local"),
            "{role}: {message}"
        );
    }
}

#[test]
fn log_lines_on_a_terminal_are_text() {
    let command = words("activator").join(" ");
    let output = run(&["script", "-qec", &command, "/dev/null"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("ERROR") && text.contains("is not local"),
        "{text}"
    );
    assert!(!text.contains('{'), "{text}");
}
