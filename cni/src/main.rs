//! `dormouse-cni`: the CNI plugin, executed by a container runtime for each pod. It sends one request to the agent and
//! prints the reply. It keeps no state, starts no async runtime, and writes only JSON to standard output.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dormouse_cni::error::{CniError, code};
use dormouse_cni::invocation::{Environment, version_for_errors};
use dormouse_cni::{Command, Invocation, SpecVersion};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde_json::json;

mod agent;
mod call;

/// Longest network configuration, in bytes.
const STDIN_LEN_MAX: usize = 4 * 1024 * 1024;
/// Time in which the runtime must have written it and closed standard input.
const STDIN_DEADLINE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let command = std::env::var("CNI_COMMAND").unwrap_or_default();
    if command.is_empty() {
        let versions = SpecVersion::ALL.map(SpecVersion::text).join(", ");
        eprintln!(
            "dormouse-cni: the CNI plugin of Dormouse; set CNI_COMMAND. CNI protocol versions: {versions}"
        );
        return ExitCode::SUCCESS;
    }
    let mut stdin = Vec::new();
    let outcome = Command::parse(&command).and_then(|command| run(command, &mut stdin));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A runtime that cannot read the error still sees the exit code.
            let _ = print(&error.json(version_for_errors(&stdin)));
            ExitCode::FAILURE
        }
    }
}

fn print(answer: &impl Serialize) -> Result<(), CniError> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, answer)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush())
        .map_err(|error| {
            eprintln!("dormouse-cni: failed to print the answer: {error}");
            CniError::new(code::IO, "failed to print the answer").details(error.to_string())
        })
}

fn run(command: Command, stdin: &mut Vec<u8>) -> Result<(), CniError> {
    if command == Command::Version {
        return print(&json!({
            "cniVersion": SpecVersion::V1_1_0.text(),
            "supportedVersions": SpecVersion::ALL.map(SpecVersion::text),
        }));
    }
    read_configuration(stdin)?;
    let environment = Environment::read(program(), |name| std::env::var(name).ok());
    let invocation = Invocation::parse(command, environment, stdin)?;
    match command {
        Command::Add => {
            let result = call::add(&invocation)?;
            // A runtime that did not read the result will not use the pod: undo ADD.
            print(&result).inspect_err(|_| drop(call::del(&invocation)))
        }
        Command::Del => call::del(&invocation),
        Command::Check => call::check(&invocation),
        Command::Status => call::status(&invocation),
        Command::Gc => call::gc(&invocation),
        Command::Version => Ok(()),
    }
}

/// The plugin's name in a configuration's `type`: the file name under which it was executed.
fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Reads standard input to its end, with a deadline: a runtime may forget to close it.
fn read_configuration(stdin: &mut Vec<u8>) -> Result<(), CniError> {
    let failed = |error: io::Error| {
        CniError::new(code::IO, "failed to read the network configuration")
            .details(error.to_string())
    };
    let began = Instant::now();
    // Reads the descriptor directly: bytes in the buffer of `io::Stdin` would not wake `poll`.
    let input = io::stdin();
    let mut part = [0; 16 * 1024];
    loop {
        let left = STDIN_DEADLINE.saturating_sub(began.elapsed());
        let timeout = Timespec::try_from(left)
            .map_err(io::Error::other)
            .map_err(failed)?;
        let mut ready = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut ready, Some(&timeout)) {
            Ok(0) => {
                let why = "standard input was not closed in time";
                return Err(failed(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
            Err(rustix::io::Errno::INTR) => continue,
            other => other.map_err(io::Error::from).map_err(failed)?,
        };
        let length = rustix::io::read(&input, &mut part)
            .map_err(io::Error::from)
            .map_err(failed)?;
        if length == 0 {
            return Ok(());
        }
        stdin.extend_from_slice(&part[..length]);
        if stdin.len() > STDIN_LEN_MAX {
            let msg = format!("the network configuration is longer than {STDIN_LEN_MAX} bytes");
            return Err(CniError::new(code::INVALID_CONFIG, msg));
        }
    }
}
