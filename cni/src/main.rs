//! `dormouse-cni`: what a container runtime executes for each pod. It hands the request to the agent and prints the
//! reply; it keeps no state, starts no runtime, and writes nothing but JSON to standard output.

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

/// The longest configuration that is read, in bytes.
const STDIN_LEN_MAX: usize = 4 * 1024 * 1024;
/// How long a runtime may take to write it.
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
            // Who does not read the error sees the exit code.
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
            // A runtime that went away will not use what it did not read.
            print(&result).inspect_err(|_| drop(call::del(&invocation)))
        }
        Command::Del => call::del(&invocation),
        Command::Check => call::check(&invocation),
        Command::Status => call::status(&invocation),
        Command::Gc => call::gc(&invocation),
        Command::Version => Ok(()),
    }
}

/// The name under which a configuration calls this plugin.
fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Reads standard input to its end, which a runtime that forgets to close it never lets us see.
fn read_configuration(stdin: &mut Vec<u8>) -> Result<(), CniError> {
    let failed = |error: io::Error| {
        CniError::new(code::IO, "failed to read the network configuration")
            .details(error.to_string())
    };
    let began = Instant::now();
    // Not `io::Stdin`: what it keeps in its buffer would not wake the poll.
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
