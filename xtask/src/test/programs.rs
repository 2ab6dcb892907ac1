//! Runs of test programs, in two lanes: tests of whole nodes use the machine's kernel and mostly wait, so they run one after
//! another beside all others.

use std::process::Command;
use std::thread;

use anyhow::bail;

use super::counts::Counts;
use super::failures::failures;
use crate::binaries::{self, TestProgram};
use crate::progress::{Line, Step, last_lines};
use crate::setup::path;

/// Where tests of whole nodes are.
const NODES: &str = "agent/tests/";

/// What test programs found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Found {
    /// Passed and failed tests.
    pub(crate) counts: Counts,
    /// What is to be repeated at the end, for each program with a failure.
    pub(crate) failures: Vec<String>,
}

/// Runs the tests whose name contains `filter`, or all.
pub(crate) fn run(programs: &[TestProgram], filter: Option<&str>) -> Found {
    let step = Step::begin("run the tests");
    let (nodes, others): (Vec<_>, Vec<_>) = programs
        .iter()
        .partition(|program| program.name.starts_with(NODES));
    let (mut found, others) = thread::scope(|scope| {
        let nodes = scope.spawn(|| lane(&step, &nodes, filter));
        let others = lane(&step, &others, filter);
        (nodes.join().unwrap_or_else(|_| Found::broken()), others)
    });
    found.add(others);
    found.end(step);
    found
}

/// Runs the examples of the documentation.
pub(crate) fn run_examples(filter: Option<&str>) -> Found {
    let step = Step::begin("run the documentation's examples");
    let mut command = binaries::cargo();
    command.args(["test", "--workspace", "--doc", "--quiet", "--no-fail-fast"]);
    command.args(filter);
    let found = one(&step, "examples", &mut command);
    found.end(step);
    found
}

fn lane(step: &Step, programs: &[&TestProgram], filter: Option<&str>) -> Found {
    let mut found = Found::default();
    for program in programs {
        let mut command = Command::new(&program.path);
        command
            .args(filter)
            .current_dir(&program.folder)
            .env("CARGO_MANIFEST_DIR", &program.folder)
            .env("PATH", path::search_path());
        found.add(one(step, &program.name, &mut command));
    }
    found
}

/// Runs one program; one that ends without a summary of its tests counts as a failure.
fn one(step: &Step, name: &str, command: &mut Command) -> Found {
    let mut counts = Counts::default();
    let mut lines = Vec::new();
    step.at(name);
    let outcome = step.run(command, |line| {
        let (Line::Stdout(text) | Line::Stderr(text)) = line;
        counts.add(&text);
        lines.push(text);
    });
    let outcome = outcome.and_then(|status| {
        if !status.success() {
            bail!("{status}");
        }
        Ok(())
    });
    let Err(error) = outcome else {
        step.say(&format!("  {name}: {counts}"));
        return Found {
            counts,
            failures: Vec::new(),
        };
    };
    counts.failed = counts.failed.max(1);
    step.say(&format!("✗ {name}: {counts} ({error:#})"));
    for line in last_lines(&lines) {
        step.say(line);
    }
    Found {
        counts,
        failures: vec![format!("{name}: {error:#}\n{}", failures(&lines))],
    }
}

impl Found {
    fn broken() -> Self {
        let failed = 1;
        Self {
            counts: Counts { passed: 0, failed },
            failures: vec!["the thread that runs the tests of nodes panicked".to_owned()],
        }
    }

    /// Ends the step that found this.
    fn end(&self, step: Step) {
        if self.counts.failed == 0 {
            step.done();
        } else {
            step.failed();
        }
    }

    /// Adds what others found.
    pub(crate) fn add(&mut self, other: Self) {
        self.counts.passed += other.counts.passed;
        self.counts.failed += other.counts.failed;
        self.failures.extend(other.failures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(script: &str) -> Found {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        one(&Step::begin("test"), "it", &mut command)
    }

    #[test]
    fn a_program_that_dies_before_its_summary_is_a_failure() {
        let found = program("echo begun; exit 3");
        assert_eq!(found.counts.to_string(), "0 passed, 1 failed");
        assert_eq!(found.failures, ["it: exit status: 3\nbegun"]);
    }

    #[test]
    fn the_summary_is_counted() {
        let found = program("echo 'test result: ok. 12 passed; 0 failed; 1 ignored'");
        assert_eq!(found.counts.to_string(), "12 passed, 0 failed");
        assert!(found.failures.is_empty());
    }
}
