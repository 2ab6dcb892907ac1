//! The control plane runs without root: as a user with the one capability that its systemd unit names.
#![expect(clippy::unwrap_used, reason = "a failed start or call fails the test")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddrV6, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

const UNIT: &str = include_str!("../../deploy/control/dormouse.service");
const USER: u32 = 65_534;
/// The number of CAP_NET_BIND_SERVICE (linux/capability.h).
const NET_BIND_SERVICE: u64 = 1 << 10;
const ACTING_PREFIX: &str = "2001:db8:d0:0:0:a1::";
const API: SocketAddrV6 = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 6443, 0, 0);
const TIMEOUT: Duration = Duration::from_mins(1);

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The values of a setting of the unit.
fn unit(setting: &str) -> Vec<&str> {
    let lines = UNIT.lines().filter_map(|line| line.strip_prefix(setting));
    lines.filter_map(|rest| rest.strip_prefix('=')).collect()
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < TIMEOUT, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Creates an app with a port below 1024; whether the API did.
fn creates_app() -> std::io::Result<bool> {
    let app = r#"{"apiVersion": "dormouse.dev/v1alpha1", "kind": "App", "metadata": {"name": "web"},
        "spec": {"port": 80, "targetPort": 8000, "container": {"command": ["/bin/true"]}}}"#;
    let mut stream = TcpStream::connect_timeout(&API.into(), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(
        stream,
        "POST /apis/dormouse.dev/v1alpha1/namespaces/default/apps HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{app}",
        app.len()
    )?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply.starts_with("HTTP/1.1 201"))
}

#[test]
fn the_unit_names_one_capability_and_flags_that_exist() {
    let named = ["CAP_NET_BIND_SERVICE"];
    assert_eq!(unit("AmbientCapabilities"), named);
    assert_eq!(unit("CapabilityBoundingSet"), named);
    assert_eq!(
        (unit("NoNewPrivileges"), unit("LimitCORE")),
        (vec!["yes"], vec!["0"])
    );
    let dormouse = env!("CARGO_BIN_EXE_dormouse");
    let help = Command::new(dormouse)
        .args(["up", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = unit("ExecStart")[0]
        .split(' ')
        .filter(|word| word.starts_with("--"));
    for flag in flags.chain(["DORMOUSE_ACTING_PREFIX"]) {
        assert!(help.contains(flag), "{flag}");
    }
}

#[test]
fn a_user_with_one_capability_runs_the_control_plane_and_its_memory_is_not_readable() {
    unshare(CloneFlags::CLONE_NEWNET).expect("run as root: this test makes a network namespace");
    ip("link set lo up");
    ip(&format!("-6 route add local {ACTING_PREFIX}/96 dev lo"));
    let data = tempfile::tempdir().unwrap();
    chown(data.path(), Some(USER), Some(USER)).unwrap();
    // The repository can be in a folder that the user may not enter.
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let dormouse = open.path().join("dormouse");
    fs::copy(env!("CARGO_BIN_EXE_dormouse"), &dormouse).unwrap();
    let only = "-all,+net_bind_service";
    let mut command = Command::new("setpriv");
    command
        .args([format!("--reuid={USER}"), format!("--regid={USER}")])
        .args(["--clear-groups", "--no-new-privs"])
        .args([
            "--inh-caps",
            only,
            "--ambient-caps",
            only,
            "--bounding-set",
            only,
        ])
        .arg(dormouse)
        .args(["up", "--insecure", "--acting-prefix"])
        .args([&format!("{ACTING_PREFIX}/96"), "--data-dir"])
        .arg(data.path());
    let control = Process(command.spawn().unwrap());
    until("the API creates an app", || creates_app().unwrap_or(false));
    let prefix: Ipv6Addr = ACTING_PREFIX.parse().unwrap();
    let vip = SocketAddrV6::new(prefix, 80, 0, 0);
    until("the activator listens on port 80", || {
        TcpStream::connect(vip).is_ok()
    });

    let process = format!("/proc/{}", control.0.id());
    let status = fs::read_to_string(format!("{process}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().to_owned()
    };
    for name in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(field(name), format!("{NET_BIND_SERVICE:016x}"), "{name}");
    }
    assert_eq!(field("Uid:").split_whitespace().next(), Some("65534"));
    // proc(5): the files of a process that is not dumpable belong to root.
    assert_eq!(fs::metadata(format!("{process}/mem")).unwrap().uid(), 0);
}
