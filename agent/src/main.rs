//! `dormouse-agent`: parses the command line, starts logging, and prints the error of a failed command.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use dormouse_agent::cli::{Cli, execute};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = log(&cli.log) {
        eprintln!("dormouse-agent: --log {:?}: {error}", cli.log);
        return ExitCode::from(2);
    }
    match execute(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("dormouse-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Text on a terminal, JSON otherwise.
fn log(filter: &str) -> Result<(), tracing_subscriber::filter::ParseError> {
    let filter = filter.parse::<EnvFilter>()?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        // The module that logs is of interest to programs only.
        log.with_target(false).init();
    } else {
        log.json().init();
    }
    Ok(())
}
