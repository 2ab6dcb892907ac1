//! The programs that read and change rules: both kinds of iptables, nft, ipvsadm. A program that is not installed has no rules.

use std::fmt;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

/// The flag with the seconds for which iptables waits for its lock.
const LOCK_WAIT: &str = "--wait=10";

/// One kind of iptables in one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iptables {
    /// The start of its programs' names.
    program: &'static str,
}

impl Iptables {
    /// All kinds: rules of one are not seen by the other.
    pub(super) const ALL: [Self; 4] = [
        Self {
            program: "iptables-nft",
        },
        Self {
            program: "ip6tables-nft",
        },
        Self {
            program: "iptables-legacy",
        },
        Self {
            program: "ip6tables-legacy",
        },
    ];

    /// All rules; none if the program is not installed.
    pub(super) fn save(self) -> io::Result<Option<String>> {
        run(&mut Command::new(format!("{}-save", self.program)), None)
    }

    /// Applies changes without touching anything else, all or none.
    pub(super) fn restore(self, input: &str) -> io::Result<()> {
        let mut command = Command::new(format!("{}-restore", self.program));
        command.args(["--noflush", LOCK_WAIT]);
        run(&mut command, Some(input))?
            .map(drop)
            .ok_or_else(|| not_installed(self.program))
    }
}

impl fmt::Display for Iptables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program)
    }
}

/// What nft writes; none if it is not installed.
pub(super) fn nft(arguments: &[&str]) -> io::Result<Option<String>> {
    run(Command::new("nft").args(arguments), None)
}

/// Runs ipvsadm.
pub(super) fn ipvsadm(arguments: &[String]) -> io::Result<()> {
    let done = run(Command::new("ipvsadm").args(arguments), None)?;
    done.map(drop).ok_or_else(|| not_installed("ipvsadm"))
}

/// Whether rules can be seen at all.
pub(super) fn is_any_installed() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &str| std::env::split_paths(&paths).any(|folder| folder.join(name).exists());
    has("nft")
        || Iptables::ALL
            .iter()
            .any(|kind| has(&format!("{}-save", kind.program)))
}

fn not_installed(program: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("{program} is not installed"),
    )
}

/// What a program writes; none if it is not installed.
fn run(command: &mut Command, input: Option<&str>) -> io::Result<Option<String>> {
    let stdin = if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    };
    let started = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        started => started?,
    };
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(input.as_bytes())?;
    }
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output()?;
    if !status.success() {
        let stderr = String::from_utf8_lossy(&stderr);
        let program = command.get_program().to_string_lossy();
        return Err(io::Error::other(format!("{program}: {}", stderr.trim())));
    }
    String::from_utf8(stdout)
        .map(Some)
        .map_err(io::Error::other)
}
