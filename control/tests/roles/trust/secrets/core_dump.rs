//! Core dumps: there are none of the control plane, also where the host has no limit of them.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

use crate::trust::output;
use crate::world::{World, ended, in_namespace, until};

/// A process that ends as by a failed assertion, with no limit of core dumps, in a folder where it could write one; whether it did.
async fn dumps(program: &str, args: &[&str], is_up: impl AsyncFn() -> bool) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("prlimit");
    command
        .args(["--core=unlimited:unlimited", program])
        .args(args);
    command.current_dir(folder.path()).kill_on_drop(true);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let process = command.spawn().unwrap();
    let name = Path::new(program).file_name().unwrap().to_str().unwrap();
    let comm = format!("/proc/{}/comm", process.id().unwrap());
    until("the process runs", async || {
        let is_started = fs::read_to_string(&comm).is_ok_and(|comm| comm.trim() == name);
        is_started && is_up().await
    })
    .await;
    let id = i32::try_from(process.id().unwrap()).unwrap();
    let pid = Pid::from_raw(id);
    kill(pid, Signal::SIGABRT).unwrap();
    let (status, _) = ended(process).await;
    let files = fs::read_dir(folder.path()).unwrap().count();
    status.core_dumped() || files > 0
}

#[test]
fn a_control_plane_that_aborts_leaves_no_core_dump() {
    in_namespace(async || {
        let world = World::new().await;
        let data = world.folder.path().join("control");
        let args = [
            "up",
            "--acting-prefix",
            "2001:db8:a1::/96",
            "--without",
            "activator",
            "--data-dir",
        ];
        let args = [&args[..], &[data.to_str().unwrap()]].concat();
        let ca = data.join("pki/ca.crt");
        let ca = ca.to_str().unwrap();
        let healthy = async || {
            let args = ["-gsf", "--cacert", ca, "https://[::1]:6443/livez"];
            output("curl", &args).await.0
        };
        assert!(!dumps(env!("CARGO_BIN_EXE_dormouse"), &args, healthy).await);
        // Another program does, unless the host pipes or forbids dumps.
        let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
        let is_file = !pattern.starts_with('|') && !pattern.trim().is_empty();
        let sleeps = async || true;
        let other = dumps("sleep", &["1000"], sleeps).await;
        assert!(other || !is_file, "core_pattern: {pattern}");
    });
}
