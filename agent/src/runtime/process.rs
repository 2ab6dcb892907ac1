//! A pod's process, held by a pidfd, so that no signal ever reaches a later process with its number.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use tokio::io::unix::AsyncFd;

use super::RuntimeConfig;
use super::record::{Process, Record};
use super::spec::Spec;
use dormouse_agent_sys::readiness::watch;

/// A process that runs, or that nobody has waited for yet.
pub(super) struct Running {
    pub(super) process: Process,
    fd: AsyncFd<OwnedFd>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// With this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// Somebody else's child: nobody told us.
    Unknown,
}

impl Running {
    /// Starts the pod's command through `pod-init`, which enters namespace and cgroup before it becomes the command.
    pub(super) fn start(config: &RuntimeConfig, record: &Record, spec: &Spec) -> io::Result<Self> {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(config.log_path(&record.uid))?;
        let mut command = Command::new(&config.agent);
        command.arg("pod-init");
        command.arg("--netns").arg(config.netns_path(&record.uid));
        command.arg("--cgroup").arg(config.cgroup_path(&record.uid));
        if let Some(dir) = &spec.working_dir {
            command.arg("--working-dir").arg(dir);
        }
        command.arg("--").args(&spec.command);
        // Programs are looked for where the agent looks; nothing else of its environment reaches the pod.
        let path = std::env::var_os("PATH").map(|path| ("PATH", path));
        command
            .env_clear()
            .envs(path)
            .envs(environment(config, record, spec));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        // Until it is waited for, the number cannot be used again.
        let start_time = start_time(pid).unwrap_or(0);
        Self::open(Process { pid, start_time })
    }

    /// Takes over a process that an agent before this one started. None when it is gone.
    pub(super) fn adopt(process: Process) -> Option<Self> {
        let running = Self::open(process).ok()?;
        // Read after the pidfd was opened: it is of the process that bears the number now.
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

    /// Resolves when the process has ended; leaves no zombie of ours. Cancel safe.
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

    /// Asks it to end.
    pub(super) fn terminate(&self) {
        // ESRCH: it has ended, which is what was wanted.
        let _ = pidfd_send_signal(self.fd.get_ref(), Signal::TERM);
    }

    /// Its TCP table; empty when it is gone.
    pub(super) fn tcp_table(&self) -> String {
        fs::read_to_string(format!("/proc/{}/net/tcp6", self.process.pid)).unwrap_or_default()
    }
}

fn environment(config: &RuntimeConfig, record: &Record, spec: &Spec) -> Vec<(String, String)> {
    let address = record
        .address
        .map(|address| address.to_string())
        .unwrap_or_default();
    let mut environment = vec![
        ("POD_NAME".to_owned(), record.name.clone()),
        ("POD_NAMESPACE".to_owned(), record.namespace.clone()),
        ("POD_IP".to_owned(), address),
        ("NODE_NAME".to_owned(), config.node.clone()),
    ];
    environment.extend(spec.port.map(|port| ("PORT".to_owned(), port.to_string())));
    environment.extend(spec.environment.clone());
    environment
}

/// When a process started, in clock ticks since boot. A zombie counts as gone.
fn start_time(pid: i32) -> Option<u64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(stat: &str) -> Option<u64> {
    // The name is in parentheses and may hold anything, parentheses too.
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
    fn the_start_time_is_found_behind_any_name() {
        let stat = |state: &str| {
            format!("7 (a) b ({state}) {state} 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4711 99 0")
        };
        assert_eq!(parse_stat(&stat("S")), Some(4711));
        assert_eq!(parse_stat(&stat("Z")), None);
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("7 (x) S 1"), None);
    }

    #[tokio::test]
    async fn a_number_that_another_process_bears_is_not_adopted() {
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
