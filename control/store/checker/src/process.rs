//! A store in a process of its own: its start, and its end by a signal.

use std::{
    ffi::OsStr,
    io,
    path::Path,
    process::{ExitStatus, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    time,
};

use crate::wait::TIMEOUT;

/// What the process logs: warnings, and the address that it listens on.
const LOG_FILTER: &str = "warn,dormouse_store_command=info";

/// A running store. It is killed when this is dropped.
#[derive(Debug)]
pub struct StoreProcess {
    /// The URL for clients.
    pub endpoint: String,
    child: Child,
}

impl StoreProcess {
    /// Runs `PROGRAM store ARGUMENTS` on a free port, and waits until it listens. Its warnings go to the standard error
    /// of this process.
    ///
    /// # Errors
    /// The program does not start, or ends before it listens; the error has what it logged.
    pub async fn start(
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> io::Result<Self> {
        Self::run(Command::new(program), arguments).await
    }

    /// [`StoreProcess::start`] for a program that a command runs, such as a shell with limits.
    ///
    /// # Errors
    /// As of [`StoreProcess::start`].
    pub async fn run(
        mut program: Command,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> io::Result<Self> {
        let mut child = program
            .args(["store", "--listen-client-urls=http://127.0.0.1:0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .env("DORMOUSE_LOG", LOG_FILTER)
            .kill_on_drop(true)
            .spawn()?;
        let stderr = child.stderr.take();
        let stderr = stderr.ok_or_else(|| io::Error::other("the standard error is no pipe"))?;
        let mut lines = BufReader::new(stderr).lines();
        let address = time::timeout(TIMEOUT, listening(&mut lines)).await??;
        tokio::spawn(forward(lines));
        let endpoint = format!("http://{address}");
        Ok(Self { endpoint, child })
    }

    /// kill -9; returns when the process has ended.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub async fn kill(mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Ends the store as an operator does, by SIGTERM; returns when the process has ended.
    ///
    /// # Errors
    /// The process has ended before, or cannot be waited for, or does not end within a minute.
    pub async fn stop(mut self) -> io::Result<ExitStatus> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| io::Error::other("the store has ended"))?;
        kill(Pid::from_raw(id), Signal::SIGTERM)?;
        time::timeout(TIMEOUT, self.child.wait()).await?
    }
}

/// Reads the log up to the address of the first listener.
async fn listening(lines: &mut Lines<BufReader<ChildStderr>>) -> io::Result<String> {
    let mut logged = String::new();
    while let Some(line) = lines.next_line().await? {
        let fields =
            serde_json::from_str(&line).map_or(Value::Null, |line: Value| line["fields"].clone());
        if let ("listening", Some(address)) = (
            fields["message"].as_str().unwrap_or_default(),
            fields["address"].as_str(),
        ) {
            return Ok(address.to_owned());
        }
        logged.push_str(&line);
        logged.push('\n');
    }
    Err(io::Error::other(format!("the store ended: {logged}")))
}

/// Passes the rest of the log on, so that the process never waits for its reader.
async fn forward(mut lines: Lines<BufReader<ChildStderr>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.contains("\"level\":\"INFO\"") {
            eprintln!("{line}");
        }
    }
}
