//! The agent's pod network in a process of its own, so that it can be killed. A whole agent loads its programs first,
//! which takes two seconds without optimisation: too long to repeat for each of several hundred calls.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use dormouse_agent::cni;
use dormouse_agent_pod::{Network, NetworkConfig, PodEntry, PodTable};
use dormouse_rig::address::PREFIX;
use dormouse_rig::{Agent, Node, wait};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Wide, for released addresses stay in quarantine.
const RANGE4: &str = "10.64.0.0/16";
const FOLDER: &str = "DORMOUSE_TEST_AGENT";
const READY: &str = "the agent is ready";

/// The data path's table of pods, one file each: like its maps it outlives the agent, and one system call changes it.
struct Table(PathBuf);

impl PodTable for Table {
    fn add(&mut self, pod: PodEntry) -> io::Result<()> {
        fs::File::create(self.0.join(pod.address.to_string())).map(drop)
    }

    fn remove(&mut self, address: Ipv6Addr, _: Option<Ipv4Addr>) -> io::Result<()> {
        match fs::remove_file(self.0.join(address.to_string())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Becomes the agent in the process that was started for it; elsewhere does nothing. Every test that starts agents calls it
/// first.
pub(crate) fn become_one() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    set_pdeathsig(Signal::SIGKILL).unwrap();
    let mut config = NetworkConfig::new(PREFIX.parse().unwrap(), state_dir(&folder), "eth0");
    config.range4 = RANGE4.parse().ok();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let network = Network::open(config, Box::new(Table(table(&folder))));
        let network = network.unwrap_or_else(|error| panic!("{}", error.chain()));
        let listener = cni::bind(&socket(&folder)).unwrap();
        let mut out = io::stdout();
        writeln!(out, "\n{READY}").unwrap();
        out.flush().unwrap();
        let (_, in_force) = watch::channel(true);
        let parts = cni::Parts {
            network: Arc::new(network),
            host_ports: None,
            in_force,
        };
        let shutdown = CancellationToken::new();
        cni::serve(listener, parts, cni::Admission::default(), shutdown)
            .await
            .unwrap();
    });
}

pub(crate) fn state_dir(folder: &Path) -> PathBuf {
    folder.join("state")
}

pub(crate) fn table(folder: &Path) -> PathBuf {
    folder.join("table")
}

pub(crate) fn socket(folder: &Path) -> PathBuf {
    folder.join("agent.sock")
}

/// Starts an agent in this thread's network namespace, and returns when it serves. `test` becomes it.
pub(crate) fn start(test: &str, folder: &Path) -> Agent {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.any(|line| line.unwrap() == READY);
    let agent = Agent::adopt(child);
    assert!(ready, "the agent ended before it served");
    agent
}

/// Starts the agent's own binary, and returns when it runs.
pub(crate) fn start_whole(node: &Node) -> Agent {
    let log = node.dir().join("log");
    let mut command = node.home().run();
    command
        .args(["--prefix4", RANGE4, "--metrics", "[::1]:0"])
        .stderr(fs::File::create(&log).unwrap());
    let agent = Agent::start(&mut command);
    wait("the agent to run", || {
        fs::read_to_string(&log).unwrap().contains(r#""running""#)
    });
    agent
}
