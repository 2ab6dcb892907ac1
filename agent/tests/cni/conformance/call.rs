//! Expectations of a call's answer: each one that is not met is a finding.

use std::process::{ExitStatus, Output};

use dormouse_rig::Call;
use serde_json::{Value, json};

use crate::conformance::check::{Outcome, holds, same};
use crate::conformance::golden;

/// A call that is made and judged.
pub(crate) trait Judge: Sized {
    /// What a runtime passes for a capability.
    fn runtime(self, key: &str, value: &Value) -> Self;

    /// The configuration as it will be sent.
    fn text(&self) -> String;

    /// Makes the call.
    fn answer(&self) -> Answer;

    /// Expects success and its JSON.
    fn ok(&self) -> Outcome<Value> {
        self.answer().ok()
    }

    /// Expects success without output.
    fn silent(&self) -> Outcome {
        self.answer().silent()
    }

    /// Expects an error of whatever code.
    fn fails(&self) -> Outcome<Value> {
        self.answer().fails()
    }

    /// Expects an error with this code that names all these words.
    fn fails_with(&self, code: u32, words: &[&str]) -> Outcome {
        let error = self.fails()?;
        same("the error's code", &error["code"], &json!(code))
            .map_err(|seen| format!("{seen}: {error}"))?;
        names(&error, words)
    }

    /// Expects an error of whatever code that names all these words.
    fn fails_with_words(&self, words: &[&str]) -> Outcome {
        names(&self.fails()?, words)
    }
}

impl Judge for Call {
    fn runtime(self, key: &str, value: &Value) -> Self {
        self.conf(&json!({"runtimeConfig": {key: value}}))
    }

    fn text(&self) -> String {
        self.configuration().to_string()
    }

    fn answer(&self) -> Answer {
        self.run().into()
    }
}

fn names(error: &Value, words: &[&str]) -> Outcome {
    let texts = ["msg", "details"].map(|key| error[key].as_str().unwrap_or_default());
    let text = texts.join(" ");
    words.iter().try_for_each(|word| {
        holds(text.contains(word), || {
            format!("the error does not name `{word}`: {text}")
        })
    })
}

/// A plugin's answer.
pub(crate) struct Answer {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            status: output.status,
            stdout: output.stdout,
            stderr: output.stderr,
        }
    }
}

impl Answer {
    fn text(&self) -> String {
        let texts = [&self.stdout, &self.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        format!("{}; {}{}", self.status, texts[0].trim(), texts[1].trim())
    }

    fn json(&self) -> Outcome<Value> {
        let parsed = serde_json::from_slice(&self.stdout);
        holds(parsed.is_ok(), || {
            format!("standard output is not one JSON text: {}", self.text())
        })?;
        Ok(parsed.unwrap_or_default())
    }

    pub(crate) fn ok(&self) -> Outcome<Value> {
        holds(self.status.success(), || self.text())?;
        self.json()
    }

    pub(crate) fn silent(&self) -> Outcome {
        holds(self.status.success(), || self.text())?;
        holds(self.stdout.is_empty(), || {
            format!("success, but not in silence: {}", self.text())
        })
    }

    pub(crate) fn fails(&self) -> Outcome<Value> {
        holds(self.status.code().is_some_and(|code| code != 0), || {
            format!("no error: {}", self.text())
        })?;
        let error = self.json()?;
        golden::compare("error", &error)?;
        holds(error["code"].is_u64() && error["msg"].is_string(), || {
            format!("no error of CNI's form: {error}")
        })?;
        Ok(error)
    }
}
