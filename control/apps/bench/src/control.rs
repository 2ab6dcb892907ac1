//! The measured processes: `dormouse up`, and `dormouse store` where the store is measured apart.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dormouse_cluster::Client;
use dormouse_rows::process::Process;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::place::ACTING_PREFIX;

/// The store's URL.
const STORE: &str = "http://[::1]:2379";
/// The API's URL.
pub(crate) const API: &str = "http://[::1]:6443";
/// The fleet's URL.
pub(crate) const FLEET: &str = "http://[::1]:7443";
/// The metrics' address: their listener is the last one that `dormouse up` binds.
pub(crate) const METRICS: &str = "[::1]:9090";
/// Longest time until a process answers: today's starts with a million apps.
const START_LIMIT: Duration = Duration::from_mins(5);
/// Interval of attempts meanwhile.
const START_INTERVAL: Duration = Duration::from_millis(10);
/// Bytes of a log that an error shows.
const LOG_TAIL: usize = 600;

/// The control plane's programs, and the folder with their data.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    /// The program `dormouse`.
    pub(crate) program: &'a Path,
    /// The folder with the data directory and the logs.
    pub(crate) folder: &'a Path,
    /// The only core that it may use; none: all.
    pub(crate) core: Option<usize>,
}

/// A running process. It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    /// Its counters.
    pub(crate) process: Process,
    /// The time of its start.
    pub(crate) started: Instant,
}

/// `dormouse up` and its store in a process of its own.
pub(crate) struct Apart {
    /// Everything but the store.
    pub(crate) up: Server,
    /// The store.
    pub(crate) store: Server,
}

impl Apart {
    /// Ends both, so that the next ones find their ports free.
    pub(crate) async fn stop(self) -> Result<()> {
        self.up.stop().await?;
        self.store.stop().await
    }
}

impl Site<'_> {
    /// Starts the store alone and waits until it answers.
    pub(crate) async fn store(self) -> Result<(Server, Client)> {
        let data = self.data()?;
        let server = self.start("store", &["store", "--data-dir", &data])?;
        let client = client().await?;
        server.answers(self.folder, "store", &client).await?;
        Ok((server, client))
    }

    /// Starts `dormouse up` with its store, and does not wait for it.
    pub(crate) fn up(self) -> Result<Server> {
        let data = self.data()?;
        let flags = [INSECURE, "--data-dir", &data];
        self.start("up", &[&FLAGS[..], &flags].concat())
    }

    /// Starts `dormouse up` with certificates and these flags; waits until it listens, and its authority is there.
    pub(crate) async fn secured(self, flags: &[&str]) -> Result<Server> {
        let data = self.data()?;
        let up = self.start("up", &[&FLAGS[..], &["--data-dir", &data], flags].concat())?;
        up.listens(self.folder).await?;
        // It is the last file of the folder.
        let kubeconfig = self.kubeconfig()?;
        let written = async {
            while !kubeconfig.exists() {
                tokio::time::sleep(START_INTERVAL).await;
            }
        };
        match tokio::time::timeout(START_LIMIT, written).await {
            Ok(()) => Ok(up),
            Err(_elapsed) => bail!(
                "`dormouse up` has no certificates: {}",
                tail(self.folder, "up")
            ),
        }
    }

    /// The folder of the certificates of `dormouse up`.
    pub(crate) fn pki(self) -> Result<PathBuf> {
        Ok(Path::new(&self.data()?).join("pki"))
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(self) -> Result<PathBuf> {
        Ok(self.pki()?.join("admin.kubeconfig"))
    }

    /// Starts a store, and `dormouse up` without one; waits until both answer.
    pub(crate) async fn apart(self) -> Result<(Apart, Client)> {
        let (store, client) = self.store().await?;
        let without = [INSECURE, "--without", "store", "--store", STORE];
        let up = self.start("up", &[&FLAGS[..], &without].concat())?;
        up.listens(self.folder).await?;
        Ok((Apart { up, store }, client))
    }

    /// The program, which is limited to its core before it counts the cores.
    fn command(self) -> Command {
        let Some(core) = self.core else {
            return Command::new(self.program);
        };
        let mut command = Command::new("taskset");
        command
            .args(["--cpu-list", &core.to_string()])
            .arg(self.program);
        command
    }

    fn data(self) -> Result<String> {
        let data = self.folder.join("data");
        let text = data.to_str().context("a folder's name is not UTF-8")?;
        Ok(text.to_owned())
    }

    /// Starts a role, and does not wait for it.
    pub(crate) fn start(self, role: &str, arguments: &[&str]) -> Result<Server> {
        let path = log_of(self.folder, role);
        let log = File::create(&path);
        let log = log.with_context(|| format!("failed to create {}", path.display()))?;
        let started = Instant::now();
        let mut command = self.command();
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        let program = self.program.display();
        let child = child.with_context(|| format!("failed to start {program}"))?;
        let process = Process(child.id().context("a process ended at once")?);
        Ok(Server {
            child,
            process,
            started,
        })
    }
}

/// The flag for plain text.
const INSECURE: &str = "--insecure";
/// The flags of `dormouse up` that all measurements have; the grace period is short, so that masses of apps fall asleep together.
const FLAGS: [&str; 7] = [
    "up",
    "--address",
    "::1",
    "--acting-prefix",
    ACTING_PREFIX,
    "--scale-to-zero-grace",
    "1s",
];

impl Server {
    /// Waits until the last listener is bound.
    pub(crate) async fn listens(&self, folder: &Path) -> Result<()> {
        let attempts = async {
            while TcpStream::connect(METRICS).await.is_err() {
                tokio::time::sleep(START_INTERVAL).await;
            }
        };
        match tokio::time::timeout(START_LIMIT, attempts).await {
            Ok(()) => Ok(()),
            Err(_elapsed) => bail!("`dormouse up` does not listen: {}", tail(folder, "up")),
        }
    }

    async fn answers(&self, folder: &Path, role: &str, client: &Client) -> Result<()> {
        let attempts = async {
            while client
                .range("/registry/dormouse.dev/none/", 0)
                .await
                .is_err()
            {
                tokio::time::sleep(START_INTERVAL).await;
            }
        };
        match tokio::time::timeout(START_LIMIT, attempts).await {
            Ok(()) => Ok(()),
            Err(_elapsed) => bail!("`dormouse {role}` does not answer: {}", tail(folder, role)),
        }
    }

    /// Ends the process as its user would, and waits for its end.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.process.0)?);
        kill(pid, Signal::SIGTERM).context("failed to stop a process")?;
        self.child
            .wait()
            .await
            .context("failed to await a process")?;
        Ok(())
    }
}

/// A client of the store, which connects on first use.
pub(crate) async fn client() -> Result<Client> {
    Ok(Client::connect(STORE).await?)
}

fn log_of(folder: &Path, role: &str) -> PathBuf {
    folder.join(format!("{role}.log"))
}

/// The lines of a role's log that are warnings or errors.
pub(crate) fn warnings(folder: &Path, role: &str) -> Vec<String> {
    let text = std::fs::read(log_of(folder, role)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let is_warning = |line: &&str| {
        [r#""level":"WARN""#, r#""level":"ERROR""#]
            .iter()
            .any(|level| line.contains(level))
    };
    text.lines().filter(is_warning).map(str::to_owned).collect()
}

/// The number `max` of the first line with this message in a role's log, once it is there.
pub(crate) async fn limit(folder: &Path, role: &str, message: &str) -> Result<u64> {
    let path = log_of(folder, role);
    let logged = async {
        loop {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines = text.lines().filter(|line| line.contains(message));
            let found = lines
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                .find_map(|line| line["fields"]["max"].as_u64());
            if let Some(max) = found {
                return max;
            }
            tokio::time::sleep(START_INTERVAL).await;
        }
    };
    let logged = tokio::time::timeout(START_LIMIT, logged).await;
    logged.with_context(|| format!("no line \"{message}\" in the log of {role}"))
}

/// The end of a process' log.
fn tail(folder: &Path, role: &str) -> String {
    let text = std::fs::read(log_of(folder, role)).unwrap_or_default();
    let from = text.len().saturating_sub(LOG_TAIL);
    String::from_utf8_lossy(&text[from..]).into_owned()
}
