//! Machine setup: the check for build and test dependencies, and the installation of missing ones.

mod needs;
pub(crate) mod path;
mod plan;
mod probe;

use std::process::Command;

use anyhow::{Context, bail};

use self::needs::{NEEDS, Need};
use self::plan::{Machine, Step};
use crate::progress::{self, Output, say};

/// Installs all missing dependencies; fast if none is missing.
pub(crate) fn run() -> anyhow::Result<()> {
    let missing = probe::missing(NEEDS);
    if missing.is_empty() {
        return ready();
    }
    for need in &missing {
        say(&format!("missing: {} ({})", need.name, need.why));
    }
    let machine = Machine {
        root: nix::unistd::geteuid().is_root(),
        ..probe::machine()
    };
    if machine.may_use_apt() {
        execute(&plan::refresh())?;
    }
    let machine = Machine {
        offers_bpf_compiler: probe::offers_bpf_compiler(),
        ..machine
    };
    let steps = plan::steps(&missing, machine);
    if !plan::may_run(&steps, machine) {
        let commands: Vec<_> = steps.iter().map(Step::typed).collect();
        bail!(
            "missing dependencies cannot be installed by this user; run:\n  {}",
            commands.join("\n  ")
        );
    }
    steps.iter().try_for_each(execute)?;
    verify(&missing)
}

fn ready() -> anyhow::Result<()> {
    let toolchain = dormouse_ebpf_build::choose(&dormouse_ebpf_build::Machine::look())?;
    say(&format!(
        "✓ all {} dependencies are installed; {toolchain} builds the BPF objects",
        NEEDS.len()
    ));
    Ok(())
}

/// Checks that everything that was missing is installed now.
fn verify(missing: &[&'static Need]) -> anyhow::Result<()> {
    let still: Vec<_> = missing
        .iter()
        .filter(|need| !probe::found(need))
        .map(|n| n.name)
        .collect();
    if still.is_empty() {
        return ready();
    }
    bail!("still missing after the installation: {}", still.join(", "))
}

fn execute(step: &Step) -> anyhow::Result<()> {
    let mut command = Command::new(step.program);
    command
        .args(&step.arguments)
        .env("PATH", path::search_path());
    command.envs(step.environment.iter().copied());
    progress::run(&step.to_string(), &mut command, Output::OnFailure)
        .map(drop)
        .with_context(|| format!("failed to {}", step.purpose))
}
