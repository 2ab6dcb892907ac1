//! One side of the comparison: a node, its CNI plugin, and its pods' namespaces.

use std::fs;
use std::io::Write;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use dormouse_world::{Host, Process, Program, World};
use serde_json::{Value, json};

use super::super::Options;
use crate::demo::cluster::{PATIENCE, tail};

/// Folder of Debian's package of reference plugins.
pub(super) const REFERENCE: &str = "/usr/lib/cni";
const METRICS_PORT: u16 = 10_249;

/// A node and the plugin that wires its pods.
pub(super) struct Side {
    pub(super) node: Host,
    plugin: PathBuf,
    configuration: String,
}

/// Duration and output of one call of a plugin.
pub(super) struct Called {
    pub(super) ms: f64,
    pub(super) output: String,
}

impl Side {
    /// Dormouse's plugin, which calls the node's agent.
    pub(super) fn ours(node: &Host, plugin: &Path) -> Self {
        let configuration = json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "dormouse-cni",
            "socket": node.socket(), "stateDir": node.folder.join("state"),
        });
        Self::new(node, plugin.to_path_buf(), &configuration)
    }

    /// The reference plugin `bridge` with `host-local`, which keeps a file for each address.
    pub(super) fn reference(node: &Host) -> Result<Self> {
        let prefix = node.prefix.context("the node has no prefix")?;
        let configuration = json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "pods0", "isGateway": true,
            "ipam": {
                "type": "host-local", "dataDir": node.folder.join("addresses"),
                "ranges": [[{"subnet": format!("{prefix}/96")}]], "routes": [{"dst": "::/0"}],
            },
        });
        Ok(Self::new(
            node,
            Path::new(REFERENCE).join("bridge"),
            &configuration,
        ))
    }

    fn new(node: &Host, plugin: PathBuf, configuration: &Value) -> Self {
        Self {
            node: node.clone(),
            plugin,
            configuration: configuration.to_string(),
        }
    }

    /// Creates the namespaces of pods `first..end`.
    pub(super) fn make_pods(&self, first: usize, end: usize) -> Result<()> {
        let lines: Vec<String> = (first..end)
            .map(|pod| format!("netns add {}", self.name(pod)))
            .collect();
        let mut command = Command::new("ip");
        let done = execute(command.args(["-batch", "-"]), &lines.join("\n"))?;
        ensure!(done.0, "failed to create namespaces: {}", done.1);
        Ok(())
    }

    fn name(&self, pod: usize) -> String {
        format!("{}-pod-{pod}", self.node.name)
    }

    /// The file of a pod's namespace.
    pub(super) fn netns(&self, pod: usize) -> PathBuf {
        self.node.netns.with_file_name(self.name(pod))
    }

    /// Calls the plugin as a container runtime does, inside the node.
    pub(super) fn call(&self, command: &str, pod: usize) -> Result<Called> {
        let mut program = Command::new(&self.plugin);
        program
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", self.name(pod))
            .env("CNI_NETNS", self.netns(pod))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", self.plugin.parent().unwrap_or(Path::new("/")));
        let called = self.node.enter(|| {
            let began = Instant::now();
            let done = execute(&mut program, &self.configuration);
            (done, began.elapsed().as_secs_f64() * 1e3)
        })?;
        let (done, ms) = called;
        let (succeeded, output) = done?;
        ensure!(
            succeeded,
            "{command} of {} failed: {output}",
            self.name(pod)
        );
        Ok(Called { ms, output })
    }
}

/// The first address in ADD's result.
pub(super) fn address(output: &str) -> Option<Ipv6Addr> {
    let result: Value = serde_json::from_str(output).ok()?;
    let address = result.pointer("/ips/0/address")?.as_str()?;
    address.split_once('/')?.0.parse().ok()
}

/// Runs a program with text on its standard input; returns whether it succeeded, and its output.
fn execute(command: &mut Command, input: &str) -> Result<(bool, String)> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped
        .stderr(Stdio::piped())
        .spawn()
        .context("failed to start a program")?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program may end without reading its input; its exit status counts.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child
        .wait_with_output()
        .context("failed to wait for a program")?;
    let written = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&written).into_owned(),
    ))
}

/// Starts the node's agent, which logs the time of each stage of an ADD, and waits until it accepts requests.
pub(super) fn start_agent(options: &Options, world: &World, node: &Host) -> Result<Process> {
    let socket = node.socket();
    // The socket of a killed agent is stale.
    if socket.exists() {
        fs::remove_file(&socket).context("failed to remove a socket")?;
    }
    let log = node.log("dormouse-agent");
    // Consecutive agents append to the same log.
    let started = |log: &str| log.matches("running").count();
    let before = started(&fs::read_to_string(log).unwrap_or_default());
    let mut agent = world.spawn(node, &program(options, node))?;
    options.interrupt.wait_for("the agent", PATIENCE, || {
        if let Some(status) = agent.ended() {
            bail!(
                "the agent ended ({status}); its log:\n{}",
                tail(&agent.output())
            );
        }
        Ok((started(&agent.output()) > before).then_some(()))
    })?;
    Ok(agent)
}

fn program(options: &Options, node: &Host) -> Program {
    node.agent(&options.binaries.agent)
        .args([
            "--log",
            "info,dormouse_agent_pod=debug",
            "--runtime",
            "none",
        ])
        .args(["--metrics", &format!("[{}]:{METRICS_PORT}", node.address)])
}
