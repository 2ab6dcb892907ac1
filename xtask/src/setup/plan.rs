//! The commands that install missing dependencies on this machine. Pure: nothing is executed here.

use std::fmt;

use super::needs::{Cure, Need};

/// Debian's Rust, and its prebuilt core library for BPF.
const DEBIAN_COMPILER: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];

/// LLVM for bpf-linker, of the version with which Debian's Rust above was built.
const DEBIAN_LINKER: [&str; 6] = [
    "llvm-22-dev",
    "clang-22",
    "libpolly-22-dev",
    "libzstd-dev",
    "zlib1g-dev",
    "libc6-dev",
];

/// Variables by which bpf-linker's build script finds `llvm-config`.
const LINKER_ENVIRONMENT: [(&str, &str); 2] = [
    ("LLVM_PREFIX", "/usr/lib/llvm-22"),
    ("LLVM_SYS_221_PREFIX", "/usr/lib/llvm-22"),
];

/// Suppresses questions of packages.
const APT_ENVIRONMENT: (&str, &str) = ("DEBIAN_FRONTEND", "noninteractive");

/// The machine's means of installation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Machine {
    /// Whether this process may install packages.
    pub(crate) root: bool,
    /// Whether the machine has apt.
    pub(crate) apt: bool,
    /// Whether apt offers the packages of [`DEBIAN_COMPILER`] and [`DEBIAN_LINKER`].
    pub(crate) offers_bpf_compiler: bool,
}

impl Machine {
    /// Whether packages may be installed.
    pub(crate) fn may_use_apt(self) -> bool {
        self.root && self.apt
    }
}

/// A command and its purpose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// Completes the sentence "failed to …".
    pub(crate) purpose: &'static str,
    /// Additional environment variables.
    pub(crate) environment: Vec<(&'static str, &'static str)>,
    /// The program.
    pub(crate) program: &'static str,
    /// Its arguments.
    pub(crate) arguments: Vec<&'static str>,
}

impl Step {
    fn new(purpose: &'static str, program: &'static str, arguments: &[&'static str]) -> Self {
        Self {
            purpose,
            environment: Vec::new(),
            program,
            arguments: arguments.to_vec(),
        }
    }

    fn with_environment(self, environment: &[(&'static str, &'static str)]) -> Self {
        Self {
            environment: environment.to_vec(),
            ..self
        }
    }

    /// The command for a user who is not root.
    pub(crate) fn typed(&self) -> String {
        if self.is_apt() {
            format!("sudo {self}")
        } else {
            self.to_string()
        }
    }

    fn is_apt(&self) -> bool {
        self.program == "apt-get"
    }
}

/// The command, as root would type it.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            if (*name, *value) != APT_ENVIRONMENT {
                write!(f, "{name}={value} ")?;
            }
        }
        write!(f, "{} {}", self.program, self.arguments.join(" "))
    }
}

/// The update of apt's package lists, which a fresh machine lacks.
pub(crate) fn refresh() -> Step {
    Step::new(
        "update the package lists",
        "apt-get",
        &["update", "--quiet"],
    )
    .with_environment(&[APT_ENVIRONMENT])
}

/// The commands that install the missing dependencies: packages first, because bpf-linker's build needs them.
pub(crate) fn steps(missing: &[&Need], machine: Machine) -> Vec<Step> {
    let cures = |wanted: Cure| missing.iter().any(|need| need.cure == wanted);
    let (compiler, linker) = (cures(Cure::BpfCompiler), cures(Cure::BpfLinker));
    let debian = machine.offers_bpf_compiler;
    let mut steps = Vec::new();
    steps.extend(install(&packages(missing, debian)));
    steps.extend(missing.iter().filter_map(|need| component(need.cure)));
    if compiler && !debian {
        let arguments = ["toolchain", "install", "nightly", "--component", "rust-src"];
        steps.push(Step::new(
            "install a Rust that builds for BPF",
            "rustup",
            &arguments,
        ));
    }
    if linker {
        steps.push(install_linker(debian));
    }
    steps
}

/// Whether this process may run all steps; a partial setup is not attempted.
pub(crate) fn may_run(steps: &[Step], machine: Machine) -> bool {
    machine.may_use_apt() || !steps.iter().any(Step::is_apt)
}

fn packages(missing: &[&Need], debian: bool) -> Vec<&'static str> {
    let mut packages: Vec<&'static str> = Vec::new();
    for need in missing {
        match need.cure {
            Cure::Packages(names) => packages.extend(names),
            Cure::BpfCompiler if debian => packages.extend(DEBIAN_COMPILER),
            Cure::BpfLinker if debian => packages.extend(DEBIAN_LINKER),
            Cure::BpfCompiler | Cure::BpfLinker | Cure::Component(_) => {}
        }
    }
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn install(packages: &[&'static str]) -> Option<Step> {
    let arguments = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    let step = Step::new("install packages", "apt-get", &arguments);
    (!packages.is_empty()).then(|| step.with_environment(&[APT_ENVIRONMENT]))
}

fn component(cure: Cure) -> Option<Step> {
    match cure {
        Cure::Component(name) => {
            let arguments = ["component", "add", name];
            Some(Step::new(
                "install a part of the Rust toolchain",
                "rustup",
                &arguments,
            ))
        }
        Cure::Packages(_) | Cure::BpfCompiler | Cure::BpfLinker => None,
    }
}

fn install_linker(debian: bool) -> Step {
    let purpose = "build bpf-linker";
    if debian {
        let arguments = [
            "install",
            "bpf-linker",
            "--no-default-features",
            "--features",
            "llvm-22",
        ];
        return Step::new(purpose, "cargo", &arguments).with_environment(&LINKER_ENVIRONMENT);
    }
    Step::new(purpose, "cargo", &["install", "bpf-linker"])
}

#[cfg(test)]
mod tests {
    use super::super::needs::NEEDS;
    use super::*;

    const DEBIAN: Machine = Machine {
        root: true,
        apt: true,
        offers_bpf_compiler: true,
    };

    fn commands(names: &[&str], machine: Machine) -> Vec<String> {
        let missing: Vec<_> = NEEDS
            .iter()
            .filter(|need| names.contains(&need.name))
            .collect();
        assert_eq!(
            missing.len(),
            names.len(),
            "the table lacks one of {names:?}"
        );
        steps(&missing, machine).iter().map(Step::typed).collect()
    }

    #[test]
    fn packages_are_installed_by_one_command() {
        assert_eq!(
            commands(&["ip", "curl"], DEBIAN),
            ["sudo apt-get install --yes --no-install-recommends curl iproute2"]
        );
    }

    #[test]
    fn where_debian_has_a_compiler_for_bpf_the_linker_uses_its_llvm() {
        let commands = commands(&["a Rust compiler for BPF", "bpf-linker"], DEBIAN);
        assert_eq!(commands.len(), 2);
        assert!(commands[0].contains("rustc-web") && commands[0].contains("llvm-22-dev"));
        assert!(commands[1].starts_with("LLVM_PREFIX=/usr/lib/llvm-22 "));
        assert!(commands[1].ends_with("--features llvm-22"));
    }

    #[test]
    fn elsewhere_the_compiler_is_rustups_nightly() {
        let elsewhere = Machine {
            offers_bpf_compiler: false,
            ..DEBIAN
        };
        assert_eq!(
            commands(&["a Rust compiler for BPF", "bpf-linker"], elsewhere),
            [
                "rustup toolchain install nightly --component rust-src",
                "cargo install bpf-linker"
            ]
        );
    }

    #[test]
    fn components_of_the_toolchain_come_from_rustup() {
        assert_eq!(
            commands(&["rustfmt", "clippy"], DEBIAN),
            [
                "rustup component add rustfmt",
                "rustup component add clippy"
            ]
        );
    }

    #[test]
    fn a_complete_machine_needs_no_steps() {
        assert_eq!(steps(&[], DEBIAN), []);
    }

    #[test]
    fn packages_need_root_and_apt_but_rustup_needs_neither() {
        let user = Machine {
            root: false,
            ..DEBIAN
        };
        let other_system = Machine {
            apt: false,
            ..DEBIAN
        };
        let of = |name: &str| {
            let missing: Vec<_> = NEEDS.iter().filter(|need| need.name == name).collect();
            steps(&missing, DEBIAN)
        };
        assert!(may_run(&of("ip"), DEBIAN));
        assert!(!may_run(&of("ip"), user));
        assert!(!may_run(&of("ip"), other_system));
        assert!(may_run(&of("clippy"), user));
    }
}
