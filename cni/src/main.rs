//! `dormouse-cni`: what a container runtime executes for each pod. It hands the request to the agent and prints the
//! reply; it keeps no state, starts no runtime, and writes nothing but JSON to standard output.

#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::process::ExitCode;

use dormouse_cni::error::{CniError, code};
use dormouse_cni::invocation::{Environment, version_for_errors};
use dormouse_cni::{Command, Invocation, SpecVersion};
use serde_json::{Value, json};

mod call;

/// The longest configuration that is read, in bytes.
const STDIN_LEN_MAX: u64 = 4 * 1024 * 1024;

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
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(answer)) => print(&answer),
        Err(error) => {
            print(&error.json(version_for_errors(&stdin)));
            ExitCode::FAILURE
        }
    }
}

fn print(answer: &Value) -> ExitCode {
    let mut out = io::stdout().lock();
    match writeln!(out, "{answer}").and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dormouse-cni: failed to print the answer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, stdin: &mut Vec<u8>) -> Result<Option<Value>, CniError> {
    if command == Command::Version {
        return Ok(Some(json!({
            "cniVersion": SpecVersion::V1_1_0.text(),
            "supportedVersions": SpecVersion::ALL.map(SpecVersion::text),
        })));
    }
    io::stdin()
        .take(STDIN_LEN_MAX + 1)
        .read_to_end(stdin)
        .map_err(|error| {
            CniError::new(code::IO, "failed to read the network configuration")
                .details(error.to_string())
        })?;
    if stdin.len() as u64 > STDIN_LEN_MAX {
        let msg = format!("the network configuration is longer than {STDIN_LEN_MAX} bytes");
        return Err(CniError::new(code::INVALID_CONFIG, msg));
    }
    let environment = Environment::read(|name| std::env::var(name).ok());
    let invocation = Invocation::parse(command, environment, stdin)?;
    match command {
        Command::Add => call::add(&invocation).map(Some),
        Command::Del => call::del(&invocation).map(|()| None),
        Command::Check => call::check(&invocation).map(|()| None),
        Command::Status => call::status(&invocation).map(|()| None),
        Command::Gc => call::gc(&invocation).map(|()| None),
        Command::Version => Ok(None),
    }
}
