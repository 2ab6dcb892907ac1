//! Common errors of plugins, one by one.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_agent_ipam::allocator::Request as LeaseRequest;
use dormouse_agent_ipam::leases::{Leases, Opening};
use dormouse_agent_ipam::{BootId, NetnsId};
use dormouse_agent_pod::LeaseKey;
use dormouse_cni::message::Attachment;
use dormouse_cni::pending::PendingDel;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::VALID;
use dormouse_rig::wait;

use crate::node::Node;
use crate::plugin::{Attach as _, Call, address_of};

fn is_empty(node: &Node) -> bool {
    node.table().is_empty() && node.links().is_empty()
}

#[test]
fn a_deletion_succeeds_whatever_has_become_of_the_namespace() {
    let node = Node::start();
    let pod = node.pod("a");
    for netns in ["", "/nowhere", "/etc/hostname", "/proc/1/ns/net"] {
        Call::add(&node, "a", &pod).ok();
        Call::del(&node, "a").env("CNI_NETNS", netns).ok();
        assert!(is_empty(&node), "{netns}");
    }
    Call::add(&node, "a", &pod).ok();
    drop(pod);
    // The path is another pod's now.
    let next = node.pod("a");
    let result = Call::add(&node, "b", &next).ok();
    let path = next.path().to_str().unwrap();
    Call::del(&node, "a").env("CNI_NETNS", path).ok();
    assert_eq!(node.table(), [address_of(&result)]);
    Call::check(&node, "b", &next, &result).ok();
}

#[test]
fn a_deletion_needs_no_configuration_that_would_still_do() {
    let node = Node::start();
    let pod = node.pod("a");
    Call::add(&node, "a", &pod).ok();
    let broken = json!({
        "cniVersion": "0.3.1",
        "prevResult": "?",
        "ipam": {"type": "host-local"},
        "runtimeConfig": {"ips": ["?"], "portMappings": [{"hostPort": 80}]},
    });
    Call::del(&node, "a")
        .conf(&broken)
        .env("CNI_ARGS", "?")
        .ok();
    assert!(is_empty(&node));
}

#[test]
fn what_another_boot_left_is_gone_and_deleting_it_succeeds() {
    let mut node = Node::start();
    node.stop();
    let journal = node.state_dir().join("leases");
    std::fs::remove_file(&journal).unwrap();
    let opening = Opening::new(Node::prefix(), BootId([7; 16]));
    let key = LeaseKey {
        network: "pods".into(),
        container: "old".into(),
        ifname: "eth0".into(),
    };
    let request = LeaseRequest::new(key, NetnsId::default());
    let leases = Leases::open(&journal, opening).unwrap();
    let lease = leases.reserve(&request, Duration::from_secs(1)).unwrap();
    leases.confirm(lease.suffix).unwrap();
    drop(leases);
    let attachment = Attachment {
        network: "pods".into(),
        container_id: "new".into(),
        ifname: "eth0".into(),
    };
    let noted = PendingDel {
        boot_id: "another".into(),
        ..PendingDel::now(attachment).unwrap()
    };
    noted.write(node.state_dir()).unwrap();
    node.restart();
    assert!(is_empty(&node));
    Call::del(&node, "old").ok();
    let pod = node.pod("a");
    Call::add(&node, "old", &pod).ok();
    Call::del(&node, "old").ok();
    assert!(is_empty(&node));
}

#[test]
fn a_killed_plugin_leaves_nothing_that_a_deletion_or_time_does_not_take() {
    let node = Node::start();
    for i in 0..40_u64 {
        let (id, pod) = (format!("c{i}"), node.pod("k"));
        let mut child = Call::add(&node, &id, &pod).open();
        drop(child.stdin.take());
        std::thread::sleep(Duration::from_micros(150 * i));
        let signal = [Signal::SIGKILL, Signal::SIGTERM][usize::try_from(i / 2 % 2).unwrap()];
        // It may be done already.
        let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
        child.wait().unwrap();
        if i % 2 == 0 {
            Call::del(&node, &id).ok();
        }
    }
    wait("nothing is left of 40 killed plugins", || {
        Call::gc(&node, &json!({VALID: null})).ok();
        is_empty(&node)
    });
}

#[test]
fn a_runtime_that_does_not_read_the_result_has_no_pod() {
    let node = Node::start();
    let pod = node.pod("a");
    let mut child = Call::add(&node, "a", &pod).open();
    drop(child.stdout.take());
    drop(child.stdin.take());
    assert!(!child.wait().unwrap().success());
    assert!(is_empty(&node));
    Call::add(&node, "a", &pod).ok();
}

#[test]
fn input_has_an_end_in_length_and_in_time() {
    let node = Node::start();
    let endless = Call::status(&node).open();
    let long = format!("{{\"name\":\"{}\"}}", "a".repeat(5 << 20));
    Call::status(&node).stdin(long).fails(7, "longer than");
    let mut child = endless;
    let input = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(input);
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["code"], 5, "{error}");
}

#[test]
fn a_namespace_may_be_a_processes_own() {
    let node = Node::start();
    let pod = node.pod("a");
    let mut sleeper = pod.inside(|| Command::new("sleep").arg("1000").spawn());
    let path = format!("/proc/{}/ns/net", sleeper.id());
    let result = Call::add(&node, "a", &pod).env("CNI_NETNS", &path).ok();
    assert_eq!(result["interfaces"][2]["sandbox"], path);
    Call::check(&node, "a", &pod, &result).ok();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    Call::add(&node, "b", &pod)
        .env("CNI_NETNS", &path)
        .fails(4, "cannot be opened");
    Call::del(&node, "a").env("CNI_NETNS", &path).ok();
    assert!(is_empty(&node));
}

#[test]
fn every_version_is_answered_in_its_own_form() {
    let node = Node::start();
    let pod = node.pod("a");
    for version in [
        "", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
    ] {
        let conf = json!({"cniVersion": version});
        let result = Call::add(&node, "a", &pod).conf(&conf).ok();
        let said = if version.is_empty() { "0.1.0" } else { version };
        assert_eq!(result["cniVersion"], said);
        let address = match said {
            "0.1.0" | "0.2.0" => result["ip6"]["ip"].as_str(),
            _ => result["ips"][0]["address"].as_str(),
        };
        assert_eq!(address.unwrap(), format!("{}/128", node.table()[0]));
        let check = Call::check(&node, "a", &pod, &result).conf(&conf);
        if said < "0.4.0" {
            check.fails(1, "CHECK needs cniVersion 0.4.0");
        } else {
            check.ok();
        }
        let status = Call::status(&node).conf(&conf);
        let gc = Call::gc(&node, &json!({VALID: null})).conf(&conf);
        if said < "1.1.0" {
            status.fails(1, "STATUS needs cniVersion 1.1.0");
            gc.fails(1, "GC needs cniVersion 1.1.0");
        } else {
            status.ok();
            gc.ok();
        }
        Call::del(&node, "a").conf(&conf).ok();
    }
}

#[test]
fn collecting_garbage_while_pods_come_breaks_neither() {
    let node = Node::start();
    let pods: Vec<_> = (0..12).map(|i| node.pod(&format!("r{i}"))).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                Call::gc(&node, &json!({VALID: []})).ok();
            }
        });
        let calls: Vec<_> = pods
            .iter()
            .enumerate()
            .map(|(i, pod)| {
                let id = format!("r{i}");
                let node = &node;
                scope.spawn(move || Call::add(node, &id, pod).ok())
            })
            .collect();
        let added = calls.into_iter().all(|call| call.join().is_ok());
        done.store(true, Ordering::Relaxed);
        assert!(added, "every ADD succeeds");
    });
    assert_eq!(node.table().len(), node.links().len());
    Call::gc(&node, &json!({VALID: []})).ok();
    assert!(is_empty(&node));
}

#[test]
fn a_requested_address_that_cannot_be_given_is_refused_by_its_text() {
    let node = Node::start();
    let pod = node.pod("a");
    for (address, code) in [
        ("2001:db8:ffff::1", 7),
        ("fe80::1", 7),
        ("2001:db8:d0:0:0:1::1", 7),
        ("2001:db8:d0:0:0:1:1:42", 7),
        ("2001:db8:d0:0:0:1::42/64", 7),
        ("::ffff:10.0.0.1", 7),
        ("10.0.0.1", 7),
    ] {
        let ips = json!({"runtimeConfig": {"ips": [address]}});
        let refused = Call::add(&node, "a", &pod).conf(&ips);
        let text = address.parse::<std::net::IpAddr>();
        let text = text.map_or(address.to_owned(), |address| address.to_string());
        refused.fails(code, &text);
    }
    let spelled = json!({"runtimeConfig": {"ips": ["2001:0DB8:00d0::1:0:42/128"]}});
    let given = Call::add(&node, "a", &pod).conf(&spelled).ok();
    assert_eq!(given["ips"][0]["address"], "2001:db8:d0::1:0:42/128");
    Call::del(&node, "a").ok();
    Call::add(&node, "b", &pod)
        .conf(&spelled)
        .fails(11, "in quarantine for another");
    assert!(is_empty(&node));
    // A container that is restarted takes its address back.
    let given = Call::add(&node, "a", &pod).conf(&spelled).ok();
    assert_eq!(given["ips"][0]["address"], "2001:db8:d0::1:0:42/128");
    Call::del(&node, "a").ok();
    assert!(is_empty(&node));
}

#[test]
fn results_of_earlier_plugins_are_passed_on_byte_by_byte() {
    let node = Node::start();
    let pod = node.pod("a");
    let theirs = r#"{"cniVersion":"1.1.0","x":{"z":1.50e3,"a" : "\u00e4"},"interfaces":[{"name":"tap0","y":[ ]}],"ips":[{"interface":0,"address":"2001:db8:9::1/64"}],"routes":[{"dst":"2001:db8:9::/48","scope":0}]}"#;
    let (socket, state) = (node.socket(), node.state_dir().to_owned());
    let stdin = format!(
        r#"{{"cniVersion":"1.1.0","name":"pods","type":"dormouse","socket":"{}","stateDir":"{}","prevResult":{theirs}}}"#,
        socket.display(),
        state.display()
    );
    let output = Call::add(&node, "a", &pod).stdin(stdin).run();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        r#""x":{"z":1.50e3,"a" : "\u00e4"}"#,
        r#"[{"name":"tap0","y":[ ]},"#,
        r#"[{"interface":0,"address":"2001:db8:9::1/64"},"#,
        r#"[{"dst":"2001:db8:9::/48","scope":0},"#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let result: Value = serde_json::from_str(&text).unwrap();
    let at = usize::try_from(result["ips"][1]["interface"].as_u64().unwrap()).unwrap();
    assert_eq!(result["interfaces"][at]["name"], "eth0");
    Call::check(&node, "a", &pod, &result).ok();
}

#[test]
fn check_tolerates_what_later_plugins_change_and_misses_what_is_gone() {
    let node = Node::start();
    let pod = node.pod("a");
    let mut result = Call::add(&node, "a", &pod).ok();
    pod.ip("link set eth0 address 02:00:00:00:00:77");
    Call::check(&node, "a", &pod, &result).fails(101, "is not 02:d0:");
    // As the result of the plugin that changed it.
    result["interfaces"][2]["mac"] = "02:00:00:00:00:77".into();
    pod.ip("-6 route del default");
    pod.ip("-6 route add default via fe80::77 dev eth0");
    Call::check(&node, "a", &pod, &result).ok();
    let other = json!({"cniVersion": "1.1.0", "ips": [{"address": "2001:db8::1/128"}]});
    Call::check(&node, "a", &pod, &other).fails(101, "prevResult does not contain");
    pod.ip("link set eth0 down");
    Call::check(&node, "a", &pod, &result).fails(101, "is down");
    pod.ip("link del eth0");
    Call::check(&node, "a", &pod, &result).fails(101, "link was deleted");
}

#[test]
fn one_container_may_be_in_two_networks() {
    let node = Node::start();
    let pod = node.pod("a");
    let first = Call::add(&node, "a", &pod).ok();
    let other = json!({"name": "other"});
    let second = || {
        Call::add(&node, "a", &pod)
            .env("CNI_IFNAME", "eth1")
            .conf(&other)
    };
    let result = second().ok();
    assert_eq!(node.table().len(), 2);
    // The same container and interface, but another network: no attachment.
    Call::del(&node, "a").conf(&other).ok();
    assert_eq!(node.table().len(), 2);
    Call::del(&node, "a")
        .env("CNI_IFNAME", "eth1")
        .conf(&other)
        .ok();
    assert_eq!(node.table(), [address_of(&first)]);
    assert_ne!(address_of(&first), address_of(&result));
    Call::check(&node, "a", &pod, &first).ok();
}

#[test]
fn a_node_that_cannot_take_pods_fails_its_status() {
    let node = Node::start();
    Call::status(&node).ok();
    node.netns().ip("link del dormouse0");
    Call::status(&node).fails(51, "`dormouse0` was deleted");
    Call::add(&node, "a", &node.pod("a")).fails(51, "`dormouse0` was deleted");
    let full = Node::start_with("2001:db8:d0::2:0:0/120".parse().unwrap());
    let pod = full.pod("a");
    // Reservations are enough to use up a narrow prefix.
    let keep = |i: usize| {
        let id = format!("c{i}");
        Call::add(&full, &id, &pod).delegated()
    };
    Call::status(&full).ok();
    for i in 0..240 {
        keep(i).ok();
    }
    Call::status(&full).fails(50, "no address left");
    keep(240).fails(11, "no address left");
    Call::add(&full, "a", &pod).fails(11, "no address left");
    assert!(full.links().is_empty());
}

#[test]
fn only_root_is_served() {
    let node = Node::start();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(node.state_dir(), open).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(node.socket(), open).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let program = folder.path().join("dormouse-cni");
    std::fs::copy(dormouse_rig::binaries::plugin(), &program).unwrap();
    let conf = json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "dormouse",
        "socket": node.socket(), "stateDir": node.state_dir(),
    });
    let mut child = Command::new(&program)
        .env("CNI_COMMAND", "STATUS")
        .uid(65_534)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(conf.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        error["msg"].as_str().unwrap().contains("uid 65534"),
        "{error}"
    );
}
