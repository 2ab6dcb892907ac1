//! Runs every case for each of its versions, and separates failures from known deviations.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::conformance::call::Judge as _;
use crate::conformance::check::{self, Outcome};
use crate::conformance::deviations::Deviation;
use crate::conformance::stage::Stage;
use crate::conformance::subject::Subject;

/// Every version of the specification, oldest first.
pub(crate) const VERSIONS: [&str; 7] = [
    "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
];

/// Which versions a case is for.
#[derive(Clone, Copy)]
pub(crate) enum Versions {
    All,
    Since(&'static str),
    Before(&'static str),
    /// The newest that the plugin supports.
    Newest,
}

/// One thing that a plugin must do.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    name: &'static str,
    versions: Versions,
    play: fn(&mut Stage<'_>) -> Outcome,
}

/// One line of a table.
pub(crate) const fn case(
    name: &'static str,
    versions: Versions,
    play: fn(&mut Stage<'_>) -> Outcome,
) -> Case {
    Case {
        name,
        versions,
        play,
    }
}

impl Case {
    fn versions(&self, spoken: &[String]) -> Vec<String> {
        let fits = |version: &str| match self.versions {
            Versions::All => true,
            Versions::Since(first) => rank(version) >= rank(first),
            Versions::Before(end) => rank(version) < rank(end),
            Versions::Newest => spoken.last().is_some_and(|last| last == version),
        };
        let spoken = spoken.iter().filter(|version| fits(version));
        spoken.cloned().collect()
    }
}

fn rank(version: &str) -> usize {
    VERSIONS.iter().position(|v| *v == version).unwrap()
}

/// What came of a run.
#[derive(Default)]
struct Tally {
    cases: usize,
    deviations: usize,
    findings: Vec<String>,
}

/// Plays the cases; panics with all findings.
pub(crate) fn run(subject: &Subject, cases: &[Case]) {
    let spoken = supported(subject);
    // Plays only what contains this, while something is being looked for.
    let only = std::env::var("DORMOUSE_CNI_CASE").unwrap_or_default();
    let mut tally = Tally::default();
    for case in cases.iter().filter(|case| case.name.contains(&only)) {
        for version in case.versions(&spoken) {
            let known = subject
                .deviations
                .iter()
                .find(|deviation| deviation.is_for(case.name, &version, &spoken));
            tally.count(subject, case, &version, known);
        }
    }
    let unplayed = |deviation: &&Deviation| !cases.iter().any(|c| deviation.names(c.name));
    for deviation in subject.deviations.iter().filter(unplayed) {
        let what = format!("{}: listed, but no case has that name", deviation.case);
        tally.findings.push(what);
    }
    let (cases, checks, deviations) = (tally.cases, check::made(), tally.deviations);
    print(&format!(
        "{}: {cases} cases, {checks} checks, {deviations} deviations",
        subject.name
    ));
    assert!(cases > 0, "no case is called like `{only}`");
    let findings = tally.findings;
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// The versions that the plugin supports, oldest first.
fn supported(subject: &Subject) -> Vec<String> {
    let stage = Stage::open(subject, VERSIONS[0]);
    let answer = stage.call("VERSION").ok().unwrap();
    let said = answer["supportedVersions"].as_array().unwrap();
    let versions = VERSIONS.iter().map(ToString::to_string);
    versions
        .filter(|v| said.contains(&v.as_str().into()))
        .collect()
}

impl Tally {
    fn count(&mut self, subject: &Subject, case: &Case, version: &str, known: Option<&Deviation>) {
        self.cases += 1;
        let name = format!("{}@{version}", case.name);
        match (play(subject, case, version), known) {
            (Ok(()), None) => {}
            (Ok(()), Some(deviation)) if deviation.sometimes => {}
            (Ok(()), Some(deviation)) => {
                let stale = format!("{name}: passes now; take {deviation} off the list");
                self.findings.push(stale);
            }
            (Err(seen), None) => self.findings.push(format!("{name}: {seen}")),
            (Err(seen), Some(deviation)) => {
                self.deviations += 1;
                let seen: String = seen.chars().take(240).collect();
                let why = deviation.reason;
                print(&format!(
                    "{}: {name} deviates: {why}\n    {seen}",
                    subject.name
                ));
            }
        }
    }
}

fn play(subject: &Subject, case: &Case, version: &str) -> Outcome {
    let mut stage = Stage::open(subject, version);
    let played = catch_unwind(AssertUnwindSafe(|| (case.play)(&mut stage)));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(format!("the case broke off: {}", text.unwrap_or_default()))
    })
}

/// Past the harness, which captures the output of tests that pass.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
