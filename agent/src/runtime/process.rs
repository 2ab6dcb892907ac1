//! A pod's process, referred to by a pidfd, so that no signal reaches a later process with the same pid.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use dormouse_agent_logs::Output;
use dormouse_agent_sys::readiness::watch;
use dormouse_agent_sys::spawn::{Program, spawn_in};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use tokio::io::unix::AsyncFd;

use super::RuntimeConfig;
use super::init::VARIABLE;
use super::record::{Process, Record};
use super::sockets::{self, Listener};
use super::spec::{Spec, own_user};

/// A process that runs, or that has ended and was not waited for.
pub(super) struct Running {
    pub(super) process: Process,
    fd: AsyncFd<OwnedFd>,
}

/// Files that the agent opens for a pod's process, which cannot reach them by their paths.
pub(super) struct PodFiles<'a> {
    /// Ends of the FIFOs of its log.
    pub(super) output: &'a Output,
    /// Its network namespace.
    pub(super) netns: File,
    /// The mount namespace of which it gets a copy.
    pub(super) root: &'a OwnedFd,
    /// For the error if its command cannot be executed.
    pub(super) failure: File,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// Exited with this status.
    Status(i32),
    /// Killed by this signal.
    Signal(i32),
    /// Unknown: it was started by a previous agent, so it is not a child of this one.
    Unknown,
}

impl Exit {
    /// The exit code as container runtimes report it: 128 and the signal's number after a signal.
    pub(super) fn code(self) -> i32 {
        match self {
            Self::Status(status) => status,
            Self::Signal(signal) => 128 + signal,
            Self::Unknown => 255,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "exited with status {status}"),
            Self::Signal(signal) => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(known) => write!(f, "was killed by signal {signal} ({known})"),
                Err(_unnamed) => write!(f, "was killed by signal {signal}"),
            },
            Self::Unknown => f.write_str("ended"),
        }
    }
}

impl Running {
    /// Starts the pod's command through `pod-init`, which begins in the pod's cgroup as the first process of a PID namespace.
    pub(super) fn start(
        config: &RuntimeConfig,
        record: &Record,
        spec: &Spec,
        files: &PodFiles<'_>,
    ) -> io::Result<Self> {
        let input = File::open("/dev/null")?;
        let output = files.output;
        let program = Program {
            path: &config.agent,
            arguments: arguments(record, spec),
            environment: prefixed(environment(config, record, spec)),
            stdio: [input.as_fd(), output.stdout.as_fd(), output.stderr.as_fd()],
            // In the order of `pod-init`.
            files: vec![
                files.netns.as_fd(),
                files.root.as_fd(),
                files.failure.as_fd(),
            ],
            is_first: true,
        };
        let cgroup = File::open(config.cgroup_path(&record.uid))?;
        Self::open(identify(spawn_in(cgroup.as_fd(), program)?))
    }

    /// A child that was not waited for.
    pub(super) fn of(child: &Child) -> io::Result<Self> {
        Self::open(identify(
            i32::try_from(child.id()).map_err(io::Error::other)?,
        ))
    }

    /// Takes over a process that a previous agent started. None if it has ended.
    pub(super) fn adopt(process: Process) -> Option<Self> {
        let running = Self::open(process).ok()?;
        // Read after the pidfd was opened, so the start time belongs to the process of the pidfd.
        (start_time(process.pid) == Some(process.start_time)).then_some(running)
    }

    fn open(process: Process) -> io::Result<Self> {
        let pid = Pid::from_raw(process.pid).ok_or(io::ErrorKind::InvalidInput)?;
        let fd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self {
            process,
            fd: watch(fd)?,
        })
    }

    /// Resolves when the process has ended, and reaps it if it is a child. Cancel safe.
    pub(super) async fn ended(&self) -> Exit {
        // A pidfd becomes readable when its process ends, and stays so.
        let _ = self.fd.readable().await;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let Ok(Some(status)) = waitid(WaitId::PidFd(self.fd.get_ref().as_fd()), options) else {
            return Exit::Unknown;
        };
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Exit::Status(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Unknown,
        }
    }

    /// Sends SIGTERM. The first process of a PID namespace has no default action for it (pid_namespaces(7)), so that of a program without a
    /// handler is done here.
    pub(super) fn terminate(&self) {
        if ends_by_default(self.process.pid, Signal::TERM) {
            return self.kill();
        }
        // ESRCH: it has ended already.
        let _ = pidfd_send_signal(self.fd.get_ref(), Signal::TERM);
    }

    /// Sends SIGKILL.
    pub(super) fn kill(&self) {
        // ESRCH: it has ended already.
        let _ = pidfd_send_signal(self.fd.get_ref(), Signal::KILL);
    }

    /// The TCP table of its network namespace; empty if it has ended.
    pub(super) fn tcp_table(&self) -> String {
        self.table("tcp6")
    }

    /// The sockets on which processes of its network namespace listen.
    pub(super) fn listeners(&self) -> Vec<Listener> {
        let tables = [self.table("tcp6"), self.table("tcp")];
        let all = tables.iter().map(|table| sockets::listeners(table));
        all.flatten().collect()
    }

    fn table(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/net/{name}", self.process.pid)).unwrap_or_default()
    }
}

/// Whether the process neither handles, ignores nor blocks the signal.
fn ends_by_default(pid: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    is_default(&status, signal)
}

fn is_default(status: &str, signal: Signal) -> bool {
    let has = |name| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name))?;
        let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
        Some(mask & (1 << (signal.as_raw() - 1)) != 0)
    };
    // Blocked ones are taken by sigwait(3) or a signalfd.
    ["SigCgt:", "SigIgn:", "SigBlk:"]
        .into_iter()
        .all(|name| has(name) == Some(false))
}

/// The command line of `pod-init`.
fn arguments(record: &Record, spec: &Spec) -> Vec<OsString> {
    let security = &spec.security;
    let user = security.user.unwrap_or_else(|| own_user(&record.uid));
    let group = security.group.unwrap_or(user);
    let mut arguments = vec!["pod-init".to_owned(), format!("--hostname={}", record.name)];
    arguments.extend([format!("--user={user}"), format!("--group={group}")]);
    let groups = security.groups.iter();
    arguments.extend(groups.map(|group| format!("--also-group={group}")));
    arguments.extend((!security.is_filtered).then(|| "--unfiltered".to_owned()));
    let folder = spec.working_dir.iter();
    arguments.extend(folder.map(|folder| format!("--working-dir={folder}")));
    arguments.push("--".to_owned());
    arguments.extend(spec.command.iter().cloned());
    arguments.into_iter().map(OsString::from).collect()
}

/// The variables of the pod. PATH is passed on, because the command is searched there; no other variable of the agent reaches the pod.
fn environment(
    config: &RuntimeConfig,
    record: &Record,
    spec: &Spec,
) -> BTreeMap<OsString, OsString> {
    let address = record
        .address
        .map(|address| address.to_string())
        .unwrap_or_default();
    let mut environment = BTreeMap::new();
    environment.extend(std::env::var_os("PATH").map(|path| ("PATH".into(), path)));
    let own = [
        ("POD_NAME", record.name.clone()),
        ("POD_NAMESPACE", record.namespace.clone()),
        ("POD_IP", address),
        ("NODE_NAME", config.node.clone()),
        ("HOME", "/".to_owned()),
    ];
    let port = spec.port.map(|port| ("PORT", port.to_string()));
    for (name, value) in own.into_iter().chain(port) {
        environment.insert(name.into(), value.into());
    }
    let given = spec.environment.iter();
    environment.extend(given.map(|(name, value)| (name.into(), value.into())));
    environment
}

/// The variables as `pod-init` gets them: it starts with root's rights, and neither its loader nor its flags may read a pod's.
fn prefixed(environment: BTreeMap<OsString, OsString>) -> Vec<(OsString, OsString)> {
    let prefixed = |name: OsString| [OsString::from(VARIABLE), name].into_iter().collect();
    let all = environment.into_iter();
    all.map(|(name, value)| (prefixed(name), value)).collect()
}

/// This process, or a child that was not waited for: its pid cannot be reused.
pub(super) fn identify(pid: i32) -> Process {
    let start_time = start_time(pid).unwrap_or(0);
    Process { pid, start_time }
}

/// Start time of a process, in clock ticks since boot. None for a zombie.
fn start_time(pid: i32) -> Option<u64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(stat: &str) -> Option<u64> {
    // The name is in parentheses and can contain any characters, also parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let run_state = fields.next()?;
    let start_time = fields.nth(18)?.parse().ok()?;
    (run_state != "Z" && run_state != "X").then_some(start_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_after_any_name() {
        let stat = |state: &str| {
            format!("7 (a) b ({state}) {state} 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4711 99 0")
        };
        assert_eq!(parse_stat(&stat("S")), Some(4711));
        assert_eq!(parse_stat(&stat("Z")), None);
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("7 (x) S 1"), None);
    }

    #[test]
    fn a_signal_has_its_default_action_unless_it_is_handled_ignored_or_blocked() {
        let status = |cgt: u64, ign: u64, blk: u64| {
            format!("Name:\tx\nSigBlk:\t{blk:016x}\nSigIgn:\t{ign:016x}\nSigCgt:\t{cgt:016x}\n")
        };
        let (term, other) = (1 << 14, 1 << 15);
        assert!(is_default(&status(other, other, other), Signal::TERM));
        for (cgt, ign, blk) in [(term, 0, 0), (0, term, 0), (0, 0, term)] {
            assert!(!is_default(&status(cgt, ign, blk), Signal::TERM));
        }
        assert!(!is_default("", Signal::TERM), "it has ended");
    }

    #[tokio::test]
    async fn a_pid_of_another_process_is_not_adopted() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let start_time = start_time(pid).unwrap();
        assert!(
            Running::adopt(Process {
                pid,
                start_time: start_time + 1
            })
            .is_none()
        );
        assert!(Running::adopt(Process { pid, start_time }).is_some());
    }
}
