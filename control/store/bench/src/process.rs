//! The measured servers as processes: start, CPU time, resident memory, end.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dormouse_fleet::client::{Target, connect, endpoint};
use dormouse_rows::process::Process;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tonic::transport::{Channel, Endpoint};

use crate::certificates;
use crate::proto::kv_client::KvClient;
use crate::work;

/// Memory in which etcd keeps its files, so that no disk is measured.
const TMPFS: &str = "/dev/shm";
/// The largest response: a list of 500,000 values.
const RESPONSE_BYTES_MAX: usize = 512 << 20;
/// The last line of metrics.
const END_OF_METRICS: &str = "# EOF";
/// Windows of HTTP/2 for large responses.
const WINDOW_BYTES: u32 = 4 << 20;
/// Longest time until a server answers its first request.
const START_LIMIT: Duration = Duration::from_mins(2);
/// Interval of attempts meanwhile.
const START_INTERVAL: Duration = Duration::from_millis(5);

/// A kind of server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The store.
    Store,
    /// The store on a data directory.
    Durable {
        /// The directory; the first start creates its content.
        folder: PathBuf,
        /// The durability of all keys.
        mode: &'static str,
    },
    /// The store as the roles of a control plane reach it: over TLS with the certificates of this folder, or in plain text.
    OfRoles(Option<PathBuf>),
    /// The store of another build of this program.
    Build(PathBuf),
    /// The no-op server; each value in its responses has this many bytes.
    Noop {
        /// Bytes of each value.
        value_bytes: usize,
    },
    /// etcd, as installed on this machine, with its data in memory.
    Etcd,
    /// etcd on a data directory.
    EtcdAt(PathBuf),
}

/// A running server. It ends when this is dropped.
pub(crate) struct Server {
    child: Child,
    process: Process,
    url: String,
    /// How the roles of a control plane reach it; none: with the settings of the other rows.
    target: Option<Target>,
    /// Standard output of a server of this program.
    output: Option<Lines<BufReader<ChildStdout>>>,
    /// The data of etcd, removed with the server.
    _data: Option<TempDir>,
}

impl Server {
    /// Starts a server with a number of worker threads and waits until it answers.
    pub(crate) async fn start(kind: &Kind, threads: usize) -> Result<Self> {
        let server = match kind {
            Kind::Store => Self::own(&this_program()?, &["serve"], threads).await?,
            Kind::OfRoles(certificates) => Self::of_roles(certificates.as_deref(), threads).await?,
            Kind::Build(program) => Self::own(program, &["serve"], threads).await?,
            Kind::Noop { value_bytes } => {
                let bytes = value_bytes.to_string();
                let arguments = ["noop", "--value-bytes", &bytes];
                Self::own(&this_program()?, &arguments, threads).await?
            }
            Kind::Durable { folder, mode } => {
                let folder = folder.to_str().context("a folder's name is not UTF-8")?;
                let arguments = ["serve", "--data-dir", folder, "--durability", mode];
                Self::own(&this_program()?, &arguments, threads).await?
            }
            Kind::Etcd => {
                let data = folder_in_memory()?;
                let server = Self::etcd(threads, data.path())?;
                Self {
                    _data: Some(data),
                    ..server
                }
            }
            Kind::EtcdAt(folder) => Self::etcd(threads, folder)?,
        };
        server.wait_until_it_answers().await?;
        Ok(server)
    }

    /// A server of a build of this program.
    async fn own(program: &Path, arguments: &[&str], threads: usize) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(["--threads", &threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = spawn(&mut command)?;
        let output = child.stdout.take().context("a server has no output")?;
        let mut lines = BufReader::new(output).lines();
        let line = lines.next_line().await?;
        let address = line.context("a server ended before it listened")?;
        let server = Self::new(child, format!("http://{address}"))?;
        Ok(Self {
            output: Some(lines),
            ..server
        })
    }

    async fn of_roles(certificates: Option<&Path>, threads: usize) -> Result<Self> {
        let mut arguments = vec!["serve"];
        if let Some(folder) = certificates {
            let folder = folder.to_str().context("a folder's name is not UTF-8")?;
            arguments.extend(["--certificates", folder]);
        }
        let server = Self::own(&this_program()?, &arguments, threads).await?;
        let target = match certificates {
            Some(folder) => certificates::target(folder, server.address())?,
            None => endpoint(&server.url)?.into(),
        };
        Ok(Self {
            target: Some(target),
            ..server
        })
    }

    fn etcd(threads: usize, data: &Path) -> Result<Self> {
        let url = format!("http://127.0.0.1:{}", free_port()?);
        let mut command = Command::new("etcd");
        command
            .env("GOMAXPROCS", threads.to_string())
            .args([
                "--quota-backend-bytes",
                "8589934592",
                "--log-level",
                "error",
            ])
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args(["--listen-peer-urls", "http://127.0.0.1:0", "--data-dir"])
            .arg(data)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self::new(spawn(&mut command)?, url)
    }

    fn new(child: Child, url: String) -> Result<Self> {
        let process = Process(child.id().context("a server ended at once")?);
        Ok(Self {
            child,
            target: None,
            output: None,
            process,
            url,
            _data: None,
        })
    }

    /// Host and port.
    fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// A new connection.
    pub(crate) async fn channel(&self) -> Result<Channel> {
        if let Some(target) = &self.target {
            return Ok(connect(target.clone()).await?);
        }
        Endpoint::from_shared(self.url.clone())?
            .tcp_nodelay(true)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .connect()
            .await
            .with_context(|| format!("failed to connect to {}", self.url))
    }

    /// A client of the KV service on a new connection.
    pub(crate) async fn kv(&self) -> Result<KvClient<Channel>> {
        let client = KvClient::new(self.channel().await?);
        Ok(client.max_decoding_message_size(RESPONSE_BYTES_MAX))
    }

    async fn wait_until_it_answers(&self) -> Result<()> {
        let attempts = async {
            loop {
                if let Ok(mut kv) = self.kv().await
                    && work::count(&mut kv).await.is_ok()
                {
                    return;
                }
                tokio::time::sleep(START_INTERVAL).await;
            }
        };
        tokio::time::timeout(START_LIMIT, attempts)
            .await
            .with_context(|| format!("the server at {} does not answer", self.url))
    }

    /// The CPU time of the process so far, user and system.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.process.cpu()
    }

    /// The CPU time since an earlier [`Server::cpu`].
    pub(crate) fn cpu_since(&self, before: Duration) -> Result<Duration> {
        Ok(self.cpu()?.saturating_sub(before))
    }

    /// The resident memory of the process, in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        self.process.resident()
    }

    /// A metric of a server of this program.
    pub(crate) async fn metric(&mut self, name: &str) -> Result<f64> {
        let input = self
            .child
            .stdin
            .as_mut()
            .context("the server has no input")?;
        let lines = self.output.as_mut().context("the server has no output")?;
        input.write_all(b"metrics\n").await?;
        let mut found = None;
        while let Some(line) = lines.next_line().await? {
            if line == END_OF_METRICS {
                return found.with_context(|| format!("the server has no metric {name}"));
            }
            if let Some((_, value)) = line.split_once(' ').filter(|(field, _)| *field == name) {
                found = Some(value.parse()?);
            }
        }
        bail!("the server has ended")
    }

    /// Kills the process (SIGKILL) and waits for its end.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("failed to kill a server")
    }
}

/// A folder whose files are in memory; removed when it is dropped.
pub(crate) fn folder_in_memory() -> Result<TempDir> {
    TempDir::new_in(TMPFS).with_context(|| format!("failed to create a folder in {TMPFS}"))
}

/// A folder on the disk of this program; removed when it is dropped.
pub(crate) fn folder_on_disk() -> Result<TempDir> {
    let program = this_program()?;
    let folder = program.parent().context("this program has no folder")?;
    let created = TempDir::new_in(folder);
    created.with_context(|| format!("failed to create a folder in {}", folder.display()))
}

/// Whether etcd is installed.
pub(crate) fn etcd_is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("etcd").is_file())
        && Path::new(TMPFS).is_dir()
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("failed to find this program")
}

fn spawn(command: &mut Command) -> Result<Child> {
    command
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("failed to start {command:?}"))
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("failed to find a free port")?;
    Ok(listener.local_addr()?.port())
}
