//! Detection of installed dependencies and of the machine's means of installation.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::needs::{Need, Probe};
use super::path;
use super::plan::Machine;

/// The dependencies that are not installed.
pub(crate) fn missing(needs: &'static [Need]) -> Vec<&'static Need> {
    needs.iter().filter(|need| !found(need)).collect()
}

/// Whether a dependency is installed.
pub(crate) fn found(need: &Need) -> bool {
    match need.probe {
        Probe::Program(name) => path::program(name).is_some(),
        Probe::File(path) => Path::new(path).exists(),
        Probe::Component(name) => component(name),
        Probe::BpfCompiler => bpf_compiler(),
    }
}

/// The machine, without the fields for root and for apt's packages.
pub(crate) fn machine() -> Machine {
    Machine {
        apt: path::program("apt-get").is_some(),
        ..Machine::default()
    }
}

/// Whether apt offers a Rust for BPF and the LLVM that its linker needs.
pub(crate) fn offers_bpf_compiler() -> bool {
    ["libstd-rust-web-dev-bpf", "llvm-22-dev"]
        .iter()
        .all(|package| offers(package))
}

fn offers(package: &str) -> bool {
    let mut command = Command::new("apt-cache");
    command
        .args(["show", "--quiet", package])
        .env("PATH", path::search_path());
    command
        .output()
        .is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
}

fn component(name: &str) -> bool {
    let cargo = env::var_os("CARGO").map(PathBuf::from);
    let beside = cargo
        .as_deref()
        .and_then(Path::parent)
        .map(|folder| folder.join(name));
    match beside {
        Some(path) => path.exists(),
        None => path::program(name).is_some(),
    }
}

fn bpf_compiler() -> bool {
    let machine = dormouse_ebpf_build::Machine::look();
    machine.debian_rustc.is_some() || machine.nightly_source
}

#[cfg(test)]
mod tests {
    use super::super::needs::Cure;
    use super::*;

    fn need(probe: Probe) -> Need {
        Need {
            name: "it",
            why: "for a test",
            probe,
            cure: Cure::Packages(&[]),
        }
    }

    #[test]
    fn installed_dependencies_are_found() {
        assert!(found(&need(Probe::Program("sh"))));
        assert!(found(&need(Probe::File("/"))));
    }

    #[test]
    fn other_dependencies_are_missing() {
        assert!(!found(&need(Probe::Program("no-such-program"))));
        assert!(!found(&need(Probe::File("/no/such/file"))));
        assert!(!found(&need(Probe::Component("cargo-no-such-part"))));
    }
}
