//! The Rust toolchain for BPF of a machine: found by [`Machine::look`], chosen by [`choose`], a pure function.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The parts of a toolchain that a machine has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// `bpf-linker`, on PATH or in cargo's folder of binaries.
    pub linker: Option<PathBuf>,
    /// Debian's rustc, if the prebuilt `core` for BPF is installed.
    pub debian_rustc: Option<PathBuf>,
    /// Whether rustup has nightly together with its `rust-src`.
    pub nightly_source: bool,
}

/// A toolchain that can build the BPF object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Toolchain {
    /// Debian's `rustc-web` with `libstd-rust-web-dev-bpf`.
    Debian {
        /// The compiler.
        rustc: PathBuf,
        /// `bpf-linker`.
        linker: PathBuf,
    },
    /// rustup's nightly with `rust-src`, which builds `core` itself.
    Nightly {
        /// `bpf-linker`.
        linker: PathBuf,
    },
}

/// The parts of a toolchain that a machine lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// `bpf-linker` was not found.
    pub linker: bool,
    /// No compiler with a `core` for BPF was found.
    pub compiler: bool,
}

impl std::error::Error for Missing {}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (self.compiler, self.linker) {
            (true, true) => "a Rust compiler with `core` for BPF, and bpf-linker,",
            (true, false) => "a Rust compiler with `core` for BPF",
            _ => "bpf-linker",
        };
        write!(
            f,
            "{what} not found on this machine; run: cargo xtask setup"
        )
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Debian { rustc, .. } => write!(f, "Debian's {}", rustc.display()),
            Self::Nightly { .. } => write!(f, "rustup's nightly"),
        }
    }
}

impl Toolchain {
    /// The path of `bpf-linker`.
    pub fn linker(&self) -> &Path {
        match self {
            Self::Debian { linker, .. } | Self::Nightly { linker } => linker,
        }
    }
}

/// Chooses the toolchain: Debian's first, because it compiles no `core`.
pub fn choose(machine: &Machine) -> Result<Toolchain, Missing> {
    match (
        &machine.linker,
        &machine.debian_rustc,
        machine.nightly_source,
    ) {
        (Some(linker), Some(rustc), _) => Ok(Toolchain::Debian {
            rustc: rustc.clone(),
            linker: linker.clone(),
        }),
        (Some(linker), None, true) => Ok(Toolchain::Nightly {
            linker: linker.clone(),
        }),
        (linker, rustc, nightly) => Err(Missing {
            linker: linker.is_none(),
            compiler: rustc.is_none() && !nightly,
        }),
    }
}

impl Machine {
    /// Looks at this machine.
    pub fn look() -> Self {
        Self {
            linker: linker(),
            debian_rustc: debian_rustc(),
            nightly_source: nightly_source(),
        }
    }
}

fn linker() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    std::env::split_paths(&path)
        .chain(cargo_home.map(|home| home.join("bin")))
        .map(|folder| folder.join("bpf-linker"))
        .find(|file| file.is_file())
}

fn debian_rustc() -> Option<PathBuf> {
    let rustc = PathBuf::from("/usr/bin/rustc");
    let core = format!("/usr/lib/rustlib/{}/lib", crate::TARGET);
    (rustc.is_file() && Path::new(&core).is_dir()).then_some(rustc)
}

fn nightly_source() -> bool {
    let sysroot = Command::new("rustup")
        .args(["run", "nightly", "rustc", "--print", "sysroot"])
        .output();
    sysroot.is_ok_and(|output| {
        let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        output.status.success() && sysroot.join("lib/rustlib/src/rust/library/core").is_dir()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(linker: bool, debian: bool, nightly_source: bool) -> Machine {
        Machine {
            linker: linker.then(|| "/bin/bpf-linker".into()),
            debian_rustc: debian.then(|| "/usr/bin/rustc".into()),
            nightly_source,
        }
    }

    #[test]
    fn debians_compiler_is_taken_before_nightly() {
        assert!(matches!(
            choose(&machine(true, true, true)),
            Ok(Toolchain::Debian { .. })
        ));
        assert!(matches!(
            choose(&machine(true, false, true)),
            Ok(Toolchain::Nightly { .. })
        ));
    }

    #[test]
    fn a_missing_part_is_reported_with_the_command_that_installs_it() {
        let check = |machine: Machine, expected: &str| {
            let message = choose(&machine).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
            assert!(message.ends_with("run: cargo xtask setup"), "{message}");
        };
        check(machine(false, true, false), "bpf-linker");
        check(
            machine(true, false, false),
            "a Rust compiler with `core` for BPF not found",
        );
        check(
            machine(false, false, false),
            "a Rust compiler with `core` for BPF, and bpf-linker",
        );
    }
}
