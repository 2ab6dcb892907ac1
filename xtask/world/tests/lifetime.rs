//! A world is built, used and removed, whatever way its run ends.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, mem, panic, thread};

use dormouse_world::{ACTING_PREFIX, Host, Program, Spec, World, WorldError};

const LIMIT: Duration = Duration::from_secs(10);

fn spec(prefix: &str) -> Spec {
    Spec {
        prefix: prefix.to_owned(),
        nodes: 2,
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < LIMIT, "waited for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Everything on this machine that carries the world's name.
fn traces(prefix: &str) -> BTreeSet<String> {
    let start = format!("{prefix}-");
    let mut found = BTreeSet::new();
    for folder in ["/run/netns", "/sys/fs/bpf/dormouse"] {
        let entries = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        found.extend(
            names
                .filter(|name| name.starts_with(&start))
                .map(|name| format!("{folder}/{name}")),
        );
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let cgroups = mounts.lines().filter(|line| line.contains(" cgroup2 "));
    let cgroups =
        cgroups.map(|line| format!("{}/dormouse/{prefix}", line.split(' ').nth(1).unwrap()));
    let places = cgroups.chain([format!("/run/dormouse-{prefix}")]);
    found.extend(places.filter(|place| Path::new(place).exists()));
    found
}

/// One byte from `source` to `target`, over a listener that `target` opens.
fn send_byte(source: &Host, target: &Host, address: std::net::Ipv6Addr) {
    let open = || TcpListener::bind(SocketAddr::from(([0_u16; 8], 0)));
    let listener = target.enter(open).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut caller = source
        .enter(|| TcpStream::connect((address, port)))
        .unwrap()
        .unwrap();
    caller.write_all(b"!").unwrap();
    let (mut accepted, peer) = listener.accept().unwrap();
    let mut received = [0];
    accepted.read_exact(&mut received).unwrap();
    assert_eq!((received, peer.ip()), ([b'!'], source.address.into()));
}

#[test]
fn hosts_reach_each_other_over_the_switch() {
    let world = World::build(&spec("wreach")).unwrap();
    let [first, second] = world.nodes() else {
        panic!("two nodes were asked for")
    };
    send_byte(first, second, second.address);
    send_byte(world.client(), first, first.address);
    send_byte(second, world.control(), world.control().address);
}

#[test]
fn the_client_routes_vips_to_the_nodes_and_the_control_host_takes_its_acting_prefix() {
    let world = World::build(&spec("wroute")).unwrap();
    let routes = |host: &Host, target: &str| {
        let mut command = Command::new("ip");
        command
            .args(["-6", "route", "get", target])
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        String::from_utf8(host.enter(|| command.output()).unwrap().unwrap().stdout).unwrap()
    };
    let vip = routes(world.client(), "fd00:10::1");
    let nodes = world.nodes();
    assert!(
        nodes
            .iter()
            .any(|node| vip.contains(&format!("via {}", node.address))),
        "{vip}"
    );
    assert!(routes(world.control(), "2001:db8:d0:0:0:a1:0:7").starts_with("local "));
    assert_eq!(world.control().prefix, Some(ACTING_PREFIX));
}

#[test]
fn a_program_runs_in_its_hosts_namespace_and_cgroup() {
    let world = World::build(&spec("wspawn")).unwrap();
    let node = &world.nodes()[0];
    let program = Program::new("sh").args(["-c", "echo $GREETING; exec sleep 1000"]);
    let mut process = world
        .spawn(node, &program.env("GREETING", "hello"))
        .unwrap();
    wait_for("the greeting", || process.output() == "hello\n");
    let netns = fs::metadata(format!("/proc/{}/ns/net", process.pid())).unwrap();
    assert_eq!(netns.ino(), fs::metadata(&node.netns).unwrap().ino());
    let members = fs::read_to_string(node.cgroup.join("cgroup.procs")).unwrap();
    assert_eq!(members.trim(), process.pid().to_string());
    process.kill().unwrap();
    assert!(process.ended().is_some());
}

#[test]
fn a_process_is_frozen_thawed_and_asked_to_end() {
    let world = World::build(&spec("wfreeze")).unwrap();
    let mut process = world
        .spawn(world.control(), &Program::new("sleep").arg("1000"))
        .unwrap();
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next()
    };
    process.freeze().unwrap();
    wait_for("the freeze", || state() == Some('T'));
    process.thaw().unwrap();
    wait_for("the thaw", || state() != Some('T'));
    assert!(!process.terminate(LIMIT).unwrap().success());
}

#[test]
fn a_dropped_world_leaves_nothing() {
    let world = World::build(&spec("wdrop")).unwrap();
    let mut process = world
        .spawn(&world.nodes()[1], &Program::new("sleep").arg("1000"))
        .unwrap();
    fs::create_dir_all(world.nodes()[0].bpffs.join("v1")).unwrap();
    fs::create_dir(world.nodes()[1].cgroup.join("pod")).unwrap();
    assert!(traces("wdrop").len() > 5);
    drop(world);
    assert_eq!(traces("wdrop"), BTreeSet::new());
    wait_for("the death of what ran in it", || process.ended().is_some());
}

#[test]
fn a_panic_leaves_nothing() {
    let panicked = panic::catch_unwind(|| {
        let _world = World::build(&spec("wpanic")).unwrap();
        panic!("as a failed claim does");
    });
    assert!(panicked.is_err());
    assert_eq!(traces("wpanic"), BTreeSet::new());
}

#[test]
fn what_a_killed_run_left_is_cleared_by_the_next() {
    const LEAVER: &str = "WORLD_LEAVER";
    if std::env::var_os(LEAVER).is_some() {
        let world = World::build(&spec("wleak")).unwrap();
        mem::forget(
            world
                .spawn(&world.nodes()[0], &Program::new("sleep").arg("1000"))
                .unwrap(),
        );
        mem::forget(world);
        std::process::exit(0);
    }
    // The leaver is a process of its own: only the end of a process frees the world's name.
    let mut leaver = Command::new(std::env::current_exe().unwrap());
    leaver
        .args(["--exact", "what_a_killed_run_left_is_cleared_by_the_next"])
        .env(LEAVER, "1");
    assert!(leaver.output().unwrap().status.success());
    assert!(traces("wleak").len() > 5);
    World::clear("wleak").unwrap();
    assert_eq!(traces("wleak"), BTreeSet::new());
}

#[test]
fn two_runs_do_not_share_a_name() {
    let _world = World::build(&spec("wtwice")).unwrap();
    let second = World::build(&spec("wtwice"));
    assert!(
        matches!(second, Err(WorldError::InUse { .. })),
        "{second:?}"
    );
    assert!(matches!(
        World::clear("wtwice"),
        Err(WorldError::InUse { .. })
    ));
}

#[test]
fn a_bad_spec_makes_nothing() {
    let dashed = Spec {
        prefix: "w-d".to_owned(),
        nodes: 2,
    };
    assert!(matches!(
        World::build(&dashed),
        Err(WorldError::Prefix { .. })
    ));
    let empty = Spec {
        nodes: 0,
        ..spec("wempty")
    };
    assert!(matches!(
        World::build(&empty),
        Err(WorldError::Nodes { .. })
    ));
    assert_eq!(traces("wempty"), BTreeSet::new());
}
