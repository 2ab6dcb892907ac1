//! Runs a process from system call to system call and kills it at a certain one.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// System calls in which a thread waits for others. No other process sees their effects, and their number differs from
/// run to run.
const WAITING: [i64; 6] = [
    libc::SYS_accept4,
    libc::SYS_futex,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_sched_yield,
    // A wait with a time limit that was interrupted, as by the tracer.
    libc::SYS_restart_syscall,
];

/// Their names.
pub(crate) const WAITING_NAMES: [&str; 6] = [
    "accept4",
    "futex",
    "epoll_wait",
    "epoll_pwait",
    "sched_yield",
    "restart_syscall",
];

/// Whether all threads of a process are traced.
pub(crate) fn is_held(process: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let status = |thread: std::io::Result<fs::DirEntry>| {
        fs::read_to_string(thread.unwrap().path().join("status"))
    };
    threads
        .map(status)
        .all(|status| status.is_ok_and(|status| !status.contains("TracerPid:\t0\n")))
}

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    /// When it begins so many calls.
    pub(crate) at: usize,
    /// Calls of these numbers; none: of all.
    pub(crate) of: &'static [i64],
}

impl Kill {
    /// At a certain call, whichever it is.
    pub(crate) fn at(at: usize) -> Self {
        Self { at, of: &[] }
    }

    fn counts(self, call: i64) -> bool {
        self.of.is_empty() || self.of.contains(&call)
    }
}

/// What was seen of a process.
#[derive(Debug, Default)]
pub(crate) struct Traced {
    /// The number of each call that began, in order, all threads together; the last one was not carried out if the
    /// process was killed.
    pub(crate) calls: Vec<i64>,
    pub(crate) killed: bool,
    /// How the other process ended: the one whose request was served.
    pub(crate) other: Option<i32>,
    /// How the process itself ended, if it was not killed.
    pub(crate) code: Option<i32>,
}

impl Traced {
    /// Calls that do something.
    pub(crate) fn acts(&self) -> usize {
        self.calls
            .iter()
            .filter(|call| !WAITING.contains(call))
            .count()
    }
}

struct Tracer {
    process: Pid,
    /// Each thread, and the call that it is in.
    threads: HashMap<Pid, Option<i64>>,
    /// Which call is the last; none: the process runs on.
    kill_at: Option<Kill>,
    /// Whether calls are counted yet.
    counts: bool,
    other: Option<Pid>,
    seen: Traced,
    gone: bool,
}

/// Runs `program` with a file as its input, and kills it at the given call; `execve` is the first call. The
/// command is what it inherits the rest from.
pub(crate) fn run(command: &mut Command, kill_at: Option<Kill>) -> Traced {
    // A shell that waits until it is traced: so the program is traced from its first call.
    #[expect(clippy::zombie_processes, reason = "the tracer waits for it")]
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let mut tracer = Tracer::new(process, kill_at);
    tracer.counts = false;
    tracer.seize();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    while !tracer.gone {
        tracer.step();
    }
    tracer.seen
}

/// A shell that becomes a program, with a file as its input, when it reads a line.
pub(crate) fn held(program: &Path, input: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", r#"read -r go; exec "$0" < "$1""#])
        .args([program, input]);
    shell
}

/// Lets a process that waits for requests serve one, which `ask` begins in another process, and kills it at the
/// call that it says. A process that is not killed is so in the end, when it waits again.
pub(crate) fn serve(process: Pid, kill_at: Option<Kill>, ask: impl FnOnce() -> Pid) -> Traced {
    let mut tracer = Tracer::new(process, None);
    tracer.seize();
    while !tracer.waits() {
        tracer.step();
    }
    tracer.kill_at = kill_at;
    tracer.seen.calls.clear();
    tracer.other = Some(ask());
    while !tracer.gone && (tracer.seen.other.is_none() || !tracer.waits()) {
        tracer.step();
    }
    if !tracer.gone {
        kill(process, Signal::SIGKILL).unwrap();
    }
    // The runtime waits for its plugin, whatever becomes of the agent.
    while !tracer.gone || tracer.seen.other.is_none() {
        tracer.step();
    }
    tracer.seen
}

/// The tracer's end is the traced process's end.
fn options() -> Options {
    Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL
}

impl Tracer {
    fn new(process: Pid, kill_at: Option<Kill>) -> Self {
        let threads = HashMap::from([(process, None)]);
        Self {
            process,
            threads,
            kill_at,
            counts: true,
            other: None,
            seen: Traced::default(),
            gone: false,
        }
    }

    /// Takes hold of all threads, those too that begin meanwhile.
    fn seize(&mut self) {
        self.threads.clear();
        while self.seize_others() > 0 {}
    }

    /// Attaches to threads that are not traced yet; returns their number. Threads that end meanwhile are skipped.
    fn seize_others(&mut self) -> usize {
        let folder = format!("/proc/{}/task", self.process);
        let mut found = 0;
        for thread in fs::read_dir(folder).unwrap() {
            let name = thread.unwrap().file_name();
            let thread = Pid::from_raw(name.to_str().unwrap().parse().unwrap());
            if self.threads.contains_key(&thread) {
                continue;
            }
            match ptrace::seize(thread, options()) {
                // Its creator is held, and so it was from its first instruction; or it has ended.
                Err(Errno::EPERM | Errno::ESRCH) => continue,
                seized => seized.unwrap(),
            }
            found += 1;
            self.threads.insert(thread, None);
            match ptrace::interrupt(thread) {
                Err(Errno::ESRCH) => {}
                interrupted => interrupted.unwrap(),
            }
        }
        found
    }

    /// Whether nothing goes on: all threads wait.
    fn waits(&self) -> bool {
        let mut threads = self.threads.values();
        threads.all(|call| call.is_some_and(|call| WAITING.contains(&call)))
    }

    /// Takes the next thing that happens to a process of ours.
    fn step(&mut self) {
        // Other threads of this test have children of their own.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        match waitpid(None, Some(flags)).unwrap() {
            WaitStatus::PtraceSyscall(thread) => match ptrace::syscall_info(thread) {
                Ok(info) if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY => self.begin(thread),
                _ => {
                    self.threads.insert(thread, None);
                    go_on(thread, None);
                }
            },
            WaitStatus::PtraceEvent(thread, _, libc::PTRACE_EVENT_EXEC) => {
                self.counts = true;
                self.count(thread, libc::SYS_execve);
            }
            WaitStatus::PtraceEvent(thread, _, _) => {
                self.threads.entry(thread).or_default();
                go_on(thread, None);
            }
            WaitStatus::Stopped(thread, Signal::SIGSTOP) if !self.threads.contains_key(&thread) => {
                self.threads.insert(thread, None);
                go_on(thread, None);
            }
            WaitStatus::Stopped(thread, signal) => go_on(thread, Some(signal)),
            WaitStatus::Exited(process, code) => self.ended(process, Some(code)),
            WaitStatus::Signaled(process, _, _) => self.ended(process, None),
            other => panic!("{other:?}"),
        }
    }

    /// A thread begins a call.
    fn begin(&mut self, thread: Pid) {
        let path = format!("/proc/{}/task/{thread}/syscall", self.process);
        let line = fs::read_to_string(path).unwrap_or_default();
        // A thread that is being killed has no call.
        let call = line
            .split(' ')
            .next()
            .and_then(|number| number.parse().ok());
        self.count(thread, call.unwrap_or(libc::SYS_exit));
    }

    fn count(&mut self, thread: Pid, call: i64) {
        self.threads.insert(thread, Some(call));
        if self.seen.killed {
            return;
        }
        if self.counts {
            self.seen.calls.push(call);
        }
        let due = |kill: Kill| {
            self.seen
                .calls
                .iter()
                .filter(|call| kill.counts(**call))
                .count()
                >= kill.at
        };
        if self.counts && self.kill_at.is_some_and(due) {
            self.seen.killed = true;
            kill(self.process, Signal::SIGKILL).unwrap();
        } else {
            go_on(thread, None);
        }
    }

    fn ended(&mut self, process: Pid, code: Option<i32>) {
        if process == self.process {
            self.gone = true;
            self.seen.code = code;
        } else if Some(process) == self.other {
            self.seen.other = Some(code.expect("only the traced process is killed"));
        } else {
            self.threads.remove(&process);
        }
    }
}

/// On to the begin or the end of the next call.
fn go_on(thread: Pid, signal: Option<Signal>) {
    match ptrace::syscall(thread, signal) {
        // It is being killed.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => panic!("{thread} cannot go on: {error}"),
    }
}
