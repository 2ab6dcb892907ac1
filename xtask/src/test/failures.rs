//! What a failed test program says of its failures, short enough to be repeated at the end of a long run.

/// Lines of a failed test that are repeated.
const LINES_MAX: usize = 12;

/// The name of each failed test and the first lines that it wrote; the program's last lines, where it names none.
pub(crate) fn failures(lines: &[String]) -> String {
    let mut kept = Vec::new();
    let mut left = 0;
    for line in lines {
        if line.starts_with("---- ") && line.ends_with(" ----") {
            left = LINES_MAX;
        } else if line == "failures:" {
            left = 0;
        }
        if left > 0 && !line.is_empty() {
            left -= 1;
            kept.push(line.as_str());
        }
    }
    if kept.is_empty() {
        let last = &lines[lines.len().saturating_sub(LINES_MAX)..];
        kept.extend(last.iter().map(String::as_str));
    }
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_sections_of_failed_tests_are_repeated() {
        let output = lines(
            "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\npanicked\nleft: 1\n\nfailures:\n    b\n\ntest result: FAILED.",
        );
        assert_eq!(failures(&output), "---- b stdout ----\npanicked\nleft: 1");
    }

    #[test]
    fn of_a_test_that_wrote_much_the_first_lines_are_repeated() {
        let output = lines(&format!("---- b stdout ----\n{}", "more\n".repeat(100)));
        assert_eq!(failures(&output).lines().count(), LINES_MAX);
    }

    #[test]
    fn of_a_program_that_names_none_the_last_lines_are_repeated() {
        let output = lines(&format!("{}killed", "more\n".repeat(100)));
        assert!(failures(&output).ends_with("more\nkilled"));
        assert_eq!(failures(&output).lines().count(), LINES_MAX);
    }
}
