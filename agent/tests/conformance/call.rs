//! One execution of a plugin as a runtime does it: variables, a configuration on standard input, an answer.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use serde_json::{Value, json};

use crate::check::{Outcome, holds, same};
use crate::golden;
use crate::node::Netns;
use crate::stage::Stage;

/// A call that is being prepared.
#[derive(Clone)]
pub(crate) struct Call<'a> {
    node: &'a Netns,
    binary: PathBuf,
    environment: BTreeMap<&'static str, String>,
    conf: Value,
    stdin: Option<Vec<u8>>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(stage: &'a Stage<'_>, command: &str) -> Self {
        let environment = BTreeMap::from([
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_PATH", stage.subject.path.clone()),
        ]);
        Self {
            node: stage.node.netns(),
            binary: stage.subject.binary.clone(),
            environment,
            conf: stage.conf(),
            stdin: None,
        }
    }

    /// Executes another plugin.
    pub(crate) fn binary(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.binary);
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: &str) -> Self {
        self.environment.insert(name, value.to_owned());
        self
    }

    pub(crate) fn unset(mut self, name: &'static str) -> Self {
        self.environment.remove(name);
        self
    }

    /// Sets keys of the configuration.
    pub(crate) fn conf(mut self, more: &Value) -> Self {
        for (key, value) in more.as_object().unwrap() {
            self.conf[key] = value.clone();
        }
        self
    }

    /// Takes a key out of the configuration.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.conf.as_object_mut().unwrap().remove(key);
        self
    }

    /// What a runtime passes for a capability.
    pub(crate) fn runtime(self, key: &str, value: &Value) -> Self {
        self.conf(&json!({"runtimeConfig": {key: value}}))
    }

    /// Sends this instead of the configuration.
    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// The configuration as it will be sent.
    pub(crate) fn text(&self) -> String {
        self.conf.to_string()
    }

    /// Writes the configuration, then closes the plugin's input.
    pub(crate) fn feed(&self, child: &mut Child) {
        let conf = self.text().into_bytes();
        let bytes = self.stdin.as_deref().unwrap_or(&conf);
        // A plugin may answer without reading.
        let _ = child.stdin.take().unwrap().write_all(bytes);
    }

    /// Starts it on the node with these streams.
    pub(crate) fn spawn(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Child {
        self.node.inside(|| {
            use std::os::unix::process::CommandExt;
            let mut command = Command::new(&self.binary);
            command.env_clear().envs(&self.environment);
            // A group of its own, so that a delegate dies with it.
            command.process_group(0);
            command.stdin(stdin).stdout(stdout).stderr(stderr).spawn()
        })
    }

    /// Starts it, its configuration written and its input closed.
    pub(crate) fn start(&self) -> Child {
        let mut child = self.spawn(Stdio::piped(), Stdio::piped(), Stdio::piped());
        self.feed(&mut child);
        child
    }

    pub(crate) fn run(&self) -> Answer {
        self.start().wait_with_output().unwrap().into()
    }

    /// Expects success and its JSON.
    pub(crate) fn ok(&self) -> Outcome<Value> {
        self.run().ok()
    }

    /// Expects success without a word.
    pub(crate) fn silent(&self) -> Outcome {
        self.run().silent()
    }

    /// Expects an error of whatever code.
    pub(crate) fn fails(&self) -> Outcome<Value> {
        self.run().fails()
    }

    /// Expects an error with this code that names all these words.
    pub(crate) fn fails_with(&self, code: u32, words: &[&str]) -> Outcome {
        let error = self.fails()?;
        same("the error's code", &error["code"], &json!(code))
            .map_err(|seen| format!("{seen}: {error}"))?;
        names(&error, words)
    }

    /// Expects an error of whatever code that names all these words.
    pub(crate) fn fails_with_words(&self, words: &[&str]) -> Outcome {
        names(&self.fails()?, words)
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

/// What a plugin said.
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
    fn told(&self) -> String {
        let texts = [&self.stdout, &self.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        format!("{}; {}{}", self.status, texts[0].trim(), texts[1].trim())
    }

    fn json(&self) -> Outcome<Value> {
        let parsed = serde_json::from_slice(&self.stdout);
        holds(parsed.is_ok(), || {
            format!("standard output is not one JSON text: {}", self.told())
        })?;
        Ok(parsed.unwrap_or_default())
    }

    pub(crate) fn ok(&self) -> Outcome<Value> {
        holds(self.status.success(), || self.told())?;
        self.json()
    }

    pub(crate) fn silent(&self) -> Outcome {
        holds(self.status.success(), || self.told())?;
        holds(self.stdout.is_empty(), || {
            format!("success, but not in silence: {}", self.told())
        })
    }

    pub(crate) fn fails(&self) -> Outcome<Value> {
        holds(self.status.code().is_some_and(|code| code != 0), || {
            format!("no error: {}", self.told())
        })?;
        let error = self.json()?;
        golden::compare("error", &error)?;
        holds(error["code"].is_u64() && error["msg"].is_string(), || {
            format!("no error of CNI's form: {error}")
        })?;
        Ok(error)
    }
}
