//! Starts real programs on a host, and stops, freezes and ends them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::WorldError;
use crate::host::Host;

/// Joins the cgroup before the program runs, so that nothing it starts can be outside.
const JOIN_THEN_EXEC: &str = r#"echo $$ > "$0" && exec "$@""#;
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A program to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    log: Option<PathBuf>,
    folder: Option<PathBuf>,
}

impl Program {
    /// The program at this path, or of this name on the PATH.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            words: vec![program.into()],
            environment: Vec::new(),
            log: None,
            folder: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.words.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item: Into<OsString>>>(mut self, arguments: I) -> Self {
        self.words.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable beside those that it inherits.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Appends what it writes to this file; else it goes to the host's log named after the program.
    #[must_use]
    pub fn log(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(path.into());
        self
    }

    /// Starts it in this folder; else it inherits ours.
    #[must_use]
    pub fn folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.folder = Some(path.into());
        self
    }

    fn name(&self) -> String {
        let program = self.words.first().map(PathBuf::from).unwrap_or_default();
        program
            .file_name()
            .unwrap_or(OsStr::new("program"))
            .to_string_lossy()
            .into_owned()
    }
}

/// A program that was started on a host. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The file that takes what it writes.
    pub log: PathBuf,
}

impl Process {
    /// Starts `program` in the host's network namespace and cgroup, in a process group of its own: Ctrl-C
    /// in the terminal reaches only the owner of the world.
    pub fn start(host: &Host, program: &Program) -> Result<Self, WorldError> {
        let log = program
            .log
            .clone()
            .unwrap_or_else(|| host.log(&program.name()));
        let file = open_log(&log).map_err(WorldError::file("open", &log))?;
        let errors = file.try_clone().map_err(WorldError::file("open", &log))?;
        let mut command = Command::new("sh");
        command
            .args(["-c", JOIN_THEN_EXEC])
            .arg(host.cgroup.join("cgroup.procs"));
        command
            .args(&program.words)
            .envs(program.environment.iter().cloned());
        command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .process_group(0);
        if let Some(folder) = &program.folder {
            command.current_dir(folder);
        }
        let started = host.enter(|| command.spawn())?;
        let child = started.map_err(|source| WorldError::Start {
            program: program.name(),
            source,
        })?;
        Ok(Self { child, log })
    }

    /// Its process id. The same before and after it replaced the shell that started it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), WorldError> {
        let pid = self.pid();
        let target = Pid::from_raw(pid.cast_signed());
        kill(target, signal).map_err(|source| WorldError::Signal { pid, source })
    }

    /// Freezes it, as a hang would.
    pub fn freeze(&self) -> Result<(), WorldError> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    pub fn thaw(&self) -> Result<(), WorldError> {
        self.signal(Signal::SIGCONT)
    }

    /// Kills it, as a crash would, and waits until it is gone.
    pub fn kill(&mut self) -> Result<(), WorldError> {
        let pid = self.pid();
        let gone = self.child.kill().and_then(|()| self.child.wait());
        gone.map(drop).map_err(|source| WorldError::Start {
            program: format!("kill {pid}"),
            source,
        })
    }

    /// Asks it to end and waits up to `limit`.
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus, WorldError> {
        self.signal(Signal::SIGTERM)?;
        let began = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if began.elapsed() > limit {
                return Err(WorldError::Alive {
                    pid: self.pid(),
                    limit_ms: limit.as_millis(),
                });
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open_log(path: &PathBuf) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}
