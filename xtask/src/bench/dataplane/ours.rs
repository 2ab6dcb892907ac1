//! Dormouse's side: an agent on each node, pods wired by the plugin, Services in manifests.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use dormouse_world::{Host, LINK_PREFIX_LEN, Process, Program};
use serde_json::{Value, json};

use super::Bench;
use super::commands::finish;
use super::manifests;
use super::services::{SERVICE_RANGE, SERVICE_RANGE_LEN, Services};
use crate::demo::cluster::{PATIENCE, tail};

/// The range of all nodes' pods.
const POD_RANGE: &str = "2001:db8:d0::";
/// The port of the agent's metrics.
pub(in crate::bench) const METRICS_PORT: u16 = 10249;
/// The folder of manifests, below the node's folder.
const MANIFESTS: &str = "manifests";

/// Starts the node's agent, with `more` on its command line, and waits until it accepts requests.
pub(in crate::bench) fn start(bench: &Bench<'_>, node: &Host, more: &[&str]) -> Result<Process> {
    fs::create_dir_all(node.folder.join(MANIFESTS)).context("failed to create a folder")?;
    let program = program(bench, node).args(more.iter().copied());
    let mut agent = bench.world.spawn(node, &program)?;
    let socket = node.socket();
    let what = format!("the agent of {}", node.name);
    bench.options.interrupt.wait_for(&what, PATIENCE, || {
        if let Some(status) = agent.ended() {
            bail!(
                "{what} ended ({status}); its log:\n{}",
                tail(&agent.output())
            );
        }
        Ok(socket.exists().then_some(()))
    })?;
    Ok(agent)
}

fn program(bench: &Bench<'_>, node: &Host) -> Program {
    let pairs = [
        ("--runtime", "none".to_owned()),
        (
            "--service-range",
            format!("{SERVICE_RANGE}/{SERVICE_RANGE_LEN}"),
        ),
        ("--pod-range", format!("{POD_RANGE}/{LINK_PREFIX_LEN}")),
        ("--metrics", format!("[{}]:{METRICS_PORT}", node.address)),
    ];
    let mut program = node.agent(&bench.options.binaries.agent);
    for (flag, value) in pairs {
        program = program.arg(flag).arg(value);
    }
    program.arg("--manifests").arg(node.folder.join(MANIFESTS))
}

/// Calls the plugin's ADD as a container runtime does; returns the pod's address.
pub(in crate::bench) fn wire(plugin: &Path, node: &Host, pod: &Host) -> Result<Ipv6Addr> {
    let configuration = json!({
        "cniVersion": "1.1.0",
        "name": "pods",
        "type": "dormouse-cni",
        "socket": node.socket(),
        "stateDir": node.state_dir(),
    });
    let mut command = Command::new(plugin);
    command
        .env_clear()
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", &pod.name)
        .env("CNI_NETNS", &pod.netns)
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", plugin.parent().unwrap_or(Path::new("/")));
    let result = finish(Some(&node.netns), &mut command, &configuration.to_string())?;
    address(&result).with_context(|| format!("the plugin's result has no address: {result}"))
}

fn address(result: &str) -> Option<Ipv6Addr> {
    let result: Value = serde_json::from_str(result).ok()?;
    let address = result.pointer("/ips/0/address")?.as_str()?;
    address.split_once('/')?.0.parse().ok()
}

/// Writes the node's Services.
pub(super) fn write_services(node: &Host, services: &Services) -> Result<()> {
    write_manifests(node, &manifests::documents(services))
}

/// Writes the node's manifests, by a rename: the agent reads the file as soon as it appears.
pub(in crate::bench) fn write_manifests(node: &Host, documents: &str) -> Result<()> {
    let (written, watched) = (
        node.folder.join("services.yaml"),
        node.folder.join(MANIFESTS).join("services.yaml"),
    );
    fs::write(&written, documents)
        .and_then(|()| fs::rename(&written, &watched))
        .with_context(|| format!("failed to write {}", watched.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_address_is_the_plugins_first() {
        let result = r#"{"ips": [{"address": "2001:db8::7/128"}]}"#;
        assert_eq!(address(result), Some("2001:db8::7".parse().unwrap()));
        assert_eq!(address("{}"), None);
    }
}
