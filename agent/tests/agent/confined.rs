//! The rights that a running agent has, and those of the writer of its pods' logs.

use std::fs;

use dormouse_rig::{Node, wait};

use super::{Control, Phase, PodStatus, is_ready, on_node, start, web, with_vips};

/// Numbers of capabilities (linux/capability.h): NET_BIND_SERVICE, NET_ADMIN, NET_RAW, SYS_PTRACE, SYS_ADMIN, PERFMON, BPF.
const OF_ALL: [u32; 7] = [10, 12, 13, 19, 21, 38, 39];
/// CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID, SETPCAP, SYS_CHROOT, MKNOD.
const OF_STANDALONE: [u32; 8] = [0, 1, 5, 6, 7, 8, 18, 27];
const DAC_OVERRIDE: u64 = 1 << 1;

fn set(capabilities: &[u32]) -> u64 {
    capabilities.iter().map(|number| 1_u64 << number).sum()
}

/// A field of a thread's status.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
}

/// The status of each thread.
fn threads(pid: i32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let paths = tasks.map(|task| task.unwrap().path().join("status"));
    paths
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect()
}

fn assert_confined(pid: i32, capabilities: u64) {
    let threads = threads(pid);
    assert!(!threads.is_empty());
    for status in threads {
        for name in ["CapPrm:", "CapEff:", "CapBnd:"] {
            assert_eq!(field(&status, name), capabilities, "{name} {status}");
        }
        for name in ["CapInh:", "CapAmb:"] {
            assert_eq!(field(&status, name), 0, "{name} {status}");
        }
        let others = [field(&status, "NoNewPrivs:"), field(&status, "Seccomp:")];
        assert_eq!(others, [1, 2], "{status}");
    }
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let words: Vec<&str> = core.unwrap().split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{limits}");
}

/// The writer of the logs, once it has its lock.
fn writer(node: &Node) -> i32 {
    let path = node.home().state_dir().join("logs/writer.lock");
    let pid = || {
        let text = fs::read(&path).ok()?;
        let process: serde_json::Value = serde_json::from_slice(&text).ok()?;
        i32::try_from(process["pid"].as_i64()?).ok()
    };
    wait("the writer of the logs", || pid().is_some());
    pid().unwrap()
}

#[test]
fn an_agent_has_no_rights_but_those_that_it_needs() {
    on_node(|node| {
        let tokio = with_vips(node);
        tokio.block_on(async {
            let mut control = Control::start().await;
            let agent = start(node, &control.url);
            control.up().await;
            // The agent with fewer rights runs pods, signals them, and removes them.
            control.handle.sync_pods(node.name(), vec![web()]);
            control.pod("the pod to be ready", is_ready).await;
            assert_confined(agent.pid().as_raw(), set(&OF_ALL) | set(&OF_STANDALONE));
            assert_confined(writer(node), DAC_OVERRIDE);
            control.handle.sync_pods(node.name(), Vec::new());
            let gone = |status: &PodStatus| status.phase() == Phase::Gone;
            control.pod("the pod to be gone", gone).await;
            node.assert_nothing_is_left("w-1");
        });
    });
}
