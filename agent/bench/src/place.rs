//! The host and its processes: `dormouse up` and the measured agent, which reaches it by the loopback interface.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dormouse_rows::process;
use dormouse_world::{ACTING_PREFIX, Host, LINK_PREFIX_LEN, Process, Program, Spec, World};

use crate::agent_log;
use crate::api::Api;
use crate::objects::{SERVICE_RANGE, SERVICE_RANGE_LEN};

/// Prefix of the hosts' names.
const PREFIX: &str = "bkube";
/// The API's port.
const API_PORT: u16 = 6443;
/// Longest time until a process serves: a million endpoints in a debug build.
const START_MAX: Duration = Duration::from_mins(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Lines of a log that an error shows.
const LOG_TAIL: usize = 20;

/// The measured programs.
pub(crate) struct Programs {
    /// `dormouse`.
    pub(crate) dormouse: PathBuf,
    /// `dormouse-agent`.
    pub(crate) agent: PathBuf,
}

/// The host, with a control that serves.
pub(crate) struct Site<'a> {
    programs: &'a Programs,
    /// Declared before the world, so that it ends before its namespace is removed.
    _control: Process,
    world: World,
}

/// A started agent whose Services are in force.
pub(crate) struct Agent {
    process: Process,
    /// From the last byte of the lists to all in force.
    pub(crate) programming: Duration,
    /// From the start of the process to all in force.
    pub(crate) start: Duration,
}

/// Where the API is.
pub(crate) fn api() -> SocketAddr {
    (Ipv6Addr::LOCALHOST, API_PORT).into()
}

impl<'a> Site<'a> {
    /// Builds the hosts and starts control.
    pub(crate) async fn build(programs: &'a Programs) -> Result<Self> {
        let world = World::build(&Spec {
            prefix: PREFIX.to_owned(),
            nodes: 1,
        })?;
        let host = world.nodes().first().context("there is no node")?;
        let program = Program::new(&programs.dormouse)
            .args(["up", "--insecure", "--address", "::1"])
            .args(["--without", "activator"])
            .args(["--acting-prefix", &format!("{ACTING_PREFIX}/96")])
            .arg("--data-dir")
            .arg(host.folder.join("control"))
            .log(host.log("control"));
        let mut control = world.spawn(host, &program)?;
        await_it("control", &mut control, |_| {
            let connected = host.enter(|| std::net::TcpStream::connect(api()))?;
            Ok(connected.is_ok().then_some(()))
        })
        .await?;
        Ok(Self {
            programs,
            _control: control,
            world,
        })
    }

    /// Connections to the API.
    pub(crate) async fn api(&self) -> Result<Api> {
        Api::connect(self.node()?, api()).await
    }

    /// The host of the agent.
    pub(crate) fn node(&self) -> Result<&Host> {
        self.world.nodes().first().context("there is no node")
    }

    /// Starts an agent that follows this server, and waits until all Services are in force.
    pub(crate) async fn start_agent(&self, server: SocketAddr) -> Result<Agent> {
        let node = self.node()?;
        let began = Instant::now();
        let mut process = self.world.spawn(node, &self.agent(node, server)?)?;
        let programming = await_it("the agent", &mut process, agent_log::programming).await?;
        Ok(Agent {
            process,
            programming,
            start: began.elapsed(),
        })
    }

    fn agent(&self, node: &Host, server: SocketAddr) -> Result<Program> {
        // A log of its own for each agent: its lines are times.
        let number = std::fs::read_dir(&node.folder)?.count();
        let range = format!("{SERVICE_RANGE}/{SERVICE_RANGE_LEN}");
        let program = node
            .agent(&self.programs.agent)
            .args(["--runtime", "none", "--service-range", &range])
            .args(["--pod-range", &format!("2001:db8:d0::/{LINK_PREFIX_LEN}")])
            .args(["--api-server", &format!("http://{server}")]);
        Ok(program.log(node.log(&format!("agent-{number}"))))
    }
}

impl Agent {
    /// Its counters.
    pub(crate) fn counters(&self) -> process::Process {
        process::Process(self.process.pid())
    }
}

/// Waits until a look at a process' log finds something.
async fn await_it<T>(
    name: &str,
    process: &mut Process,
    look: impl Fn(&str) -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        let log = process.output();
        if let Some(found) = look(&log)? {
            return Ok(found);
        }
        let ended = process.ended();
        if ended.is_some() || began.elapsed() > START_MAX {
            let lines: Vec<_> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n");
            bail!("{name} does not serve ({ended:?}); its log:\n{tail}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
