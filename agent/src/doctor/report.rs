//! The report: findings by severity, as lines for people and as a document for programs.

use std::fmt;
use std::io::{self, Write};

use dormouse_agent_inspect::{API_VERSION, Exit};
use serde::Serialize;
use serde_json::{Value, json};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, with a restriction or a risk.
    Warning,
    /// Something does not work, or will not.
    Problem,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Severity.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// Why it is bad; not with [`Level::Ok`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What to do about it; not with [`Level::Ok`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Ok,
            found: found.into(),
            reason: None,
            fix: None,
        }
    }

    /// Something is not.
    pub fn bad(
        level: Level,
        check: &'static str,
        found: impl Into<String>,
        (reason, fix): (impl Into<String>, impl Into<String>),
    ) -> Self {
        Self {
            check,
            level,
            found: found.into(),
            reason: Some(reason.into()),
            fix: Some(fix.into()),
        }
    }
}

/// All findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// In the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Number of findings of a severity.
    fn count(&self, level: Level) -> usize {
        let same = |finding: &&Finding| finding.level == level;
        self.findings.iter().filter(same).count()
    }

    /// 0, unless there is a problem: then 1.
    pub fn exit(&self) -> Exit {
        match self.count(Level::Problem) {
            0 => Exit::Yes,
            _ => Exit::No,
        }
    }

    /// The document.
    pub fn value(&self) -> Value {
        json!({
            "apiVersion": API_VERSION,
            "kind": "DoctorReport",
            "problems": self.count(Level::Problem),
            "warnings": self.count(Level::Warning),
            "findings": self.findings,
        })
    }

    /// Writes a line for each finding, and further ones for the reason and the fix.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for finding in &self.findings {
            let Finding {
                check,
                level,
                found,
                ..
            } = finding;
            writeln!(out, "{level:<7}  {check:<11}  {found}")?;
            for (name, text) in [("reason", &finding.reason), ("fix", &finding.fix)] {
                if let Some(text) = text {
                    writeln!(out, "{:<7}  {name:<11}  {text}", "")?;
                }
            }
        }
        let [ok, warnings, problems] =
            [Level::Ok, Level::Warning, Level::Problem].map(|level| self.count(level));
        writeln!(out, "problems: {problems}, warnings: {warnings}, ok: {ok}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(levels: &[Level]) -> Report {
        let finding = |level: &Level| match level {
            Level::Ok => Finding::ok("kernel", "6.18"),
            level => Finding::bad(*level, "mtu", "1200", ("too small", "set it")),
        };
        Report {
            findings: levels.iter().map(finding).collect(),
        }
    }

    #[test]
    fn only_a_problem_makes_the_answer_no() {
        assert_eq!(report(&[]).exit(), Exit::Yes);
        assert_eq!(report(&[Level::Ok, Level::Warning]).exit(), Exit::Yes);
        assert_eq!(report(&[Level::Problem, Level::Ok]).exit(), Exit::No);
    }

    #[test]
    fn reason_and_fix_follow_what_was_found() {
        let mut text = Vec::new();
        let report = report(&[Level::Ok, Level::Problem]);
        report.write(&mut text).unwrap();
        let want = "\
ok       kernel       6.18
problem  mtu          1200
         reason       too small
         fix          set it
problems: 1, warnings: 0, ok: 1
";
        assert_eq!(String::from_utf8(text).unwrap(), want);
        let value = report.value();
        assert_eq!(
            (&value["kind"], &value["problems"]),
            (&json!("DoctorReport"), &json!(1))
        );
        assert_eq!(
            value["findings"][0],
            json!({"check": "kernel", "level": "ok", "found": "6.18"})
        );
        assert_eq!(value["findings"][1]["fix"], "set it");
    }
}
