//! Finds what building and testing need, and installs what a machine lacks, where it may.

mod needs;
pub(crate) mod path;
mod plan;
mod probe;

use std::process::Command;

use anyhow::{Context, bail};

use self::needs::{NEEDS, Need};
use self::plan::{Machine, Step};
use crate::progress::{self, Output, say};

/// Makes this machine able to build and to test; quick when nothing is missing.
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
            "not allowed to install what is missing; run:\n  {}",
            commands.join("\n  ")
        );
    }
    steps.iter().try_for_each(execute)?;
    verify(&missing)
}

fn ready() -> anyhow::Result<()> {
    let toolchain = dormouse_ebpf_build::choose(&dormouse_ebpf_build::Machine::look())?;
    say(&format!(
        "✓ all {} needs are met; {toolchain} builds the BPF objects",
        NEEDS.len()
    ));
    Ok(())
}

/// What was missing must be there now, or an installation lied.
fn verify(missing: &[&'static Need]) -> anyhow::Result<()> {
    let still: Vec<_> = missing
        .iter()
        .filter(|need| !probe::found(need))
        .map(|n| n.name)
        .collect();
    if still.is_empty() {
        return ready();
    }
    bail!(
        "installed everything, but still cannot find: {}",
        still.join(", ")
    )
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
