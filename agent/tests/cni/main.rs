//! The real plugin against a real node: a namespace with an uplink, the agent's network and socket inside it, and
//! `dormouse-cni` executed as a container runtime would.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says why and ends"
)]

mod bridges;
mod conformance;
mod dual;
mod edges;
mod ipam;
mod many;
mod node;
mod offline;
mod plugin;
mod versions;

use std::io::{Read, Write};
use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use dormouse_agent_ipam::allocator::Request as LeaseRequest;
use dormouse_agent_ipam::leases::{Leases, Opening};
use dormouse_agent_ipam::{BootId, NetnsId};
use dormouse_agent_pod::LeaseKey;
use dormouse_agent_sys::netns;
use dormouse_cni::message::{Attachment, Reply, Request, Wanted};
use dormouse_cni::pending::since_boot;
use dormouse_cni::wire;
use dormouse_rig::{dial, wait};
use node::Node;
use plugin::{Attach as _, Call, address_of};
use serde_json::{Value, json};

const PORT: u16 = 8080;
const VALID: &str = "cni.dev/valid-attachments";

#[test]
fn pods_reach_each_other_their_node_and_the_outside_by_their_own_addresses() {
    let node = Node::start();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let result = Call::add(&node, "a", &a).ok();
    let (at_a, at_b) = (
        address_of(&result),
        address_of(&Call::add(&node, "b", &b).ok()),
    );
    assert_eq!(at_a, "2001:db8:d0:0:0:1:1:0".parse::<Ipv6Addr>().unwrap());
    assert_eq!(result["interfaces"][2]["name"], "eth0");
    assert_eq!(
        result["interfaces"][2]["sandbox"],
        a.path().to_str().unwrap()
    );
    assert_eq!(dial(&a, &b, at_b).unwrap(), at_a);
    assert_eq!(dial(&b, &a, at_a).unwrap(), at_b);
    assert_eq!(dial(node.netns(), &a, at_a).unwrap(), Node::address());
    assert_eq!(dial(&a, node.netns(), Node::address()).unwrap(), at_a);
    assert_eq!(dial(node.outside(), &b, at_b).unwrap(), Node::OUTSIDE);
    assert_eq!(dial(&b, node.outside(), Node::OUTSIDE).unwrap(), at_b);
    assert_eq!(node.table(), [at_a, at_b]);
    Call::check(&node, "a", &a, &result).ok();
}

#[test]
fn a_deleted_pod_is_gone_and_deleting_it_again_succeeds() {
    let node = Node::start();
    let pod = node.pod("a");
    let address = address_of(&Call::add(&node, "a", &pod).ok());
    for _ in 0..2 {
        assert_eq!(Call::del(&node, "a").ok(), Value::Null);
        assert!(node.table().is_empty() && node.links().is_empty());
    }
    Call::del(&node, "never-was").ok();
    let next = address_of(&Call::add(&node, "a", &pod).ok());
    assert_ne!(next, address, "a released address is in quarantine");
}

#[test]
fn a_second_add_is_an_error_and_leaves_the_first_as_it_was() {
    let node = Node::start();
    let pod = node.pod("a");
    let result = Call::add(&node, "a", &pod).ok();
    Call::add(&node, "a", &pod).fails(100, "already holds");
    Call::add(&node, "other-id", &pod).fails(100, "`eth0` exists already");
    Call::check(&node, "a", &pod, &result).ok();
    assert_eq!(node.table(), [address_of(&result)]);
    assert_eq!(node.links().len(), 1);
    let second = Call::add(&node, "a", &pod).env("CNI_IFNAME", "eth1").ok();
    assert_ne!(address_of(&second), address_of(&result));
    Call::del(&node, "a").env("CNI_IFNAME", "eth1").ok();
    Call::check(&node, "a", &pod, &result).ok();
}

#[test]
fn an_add_that_fails_at_its_last_step_leaves_nothing() {
    let node = Node::start();
    let pod = node.pod("a");
    node.fill_table();
    Call::add(&node, "a", &pod).fails(102, "data path");
    assert!(node.links().is_empty());
    let left = pod.inside(|| Ok(nix::net::if_::if_nameindex()?.iter().count()));
    assert_eq!(left, 1, "only loopback is left in the pod");
    Call::gc(&node, &json!({"cni.dev/valid-attachments": []})).ok();
}

#[test]
fn a_requested_address_is_given_or_refused_with_the_reason() {
    let node = Node::start();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let ask = |address: &str| json!({"runtimeConfig": {"ips": [address]}});
    let wanted = "2001:db8:d0:0:0:1:0:42";
    let given = Call::add(&node, "a", &a).conf(&ask(wanted)).ok();
    assert_eq!(address_of(&given), wanted.parse::<Ipv6Addr>().unwrap());
    Call::add(&node, "b", &b)
        .conf(&ask(wanted))
        .fails(7, "is held by pods/a/eth0");
    Call::add(&node, "b", &b)
        .conf(&ask("2001:db8:d0:0:0:1::1"))
        .fails(7, "cannot be requested");
    assert_eq!(node.links().len(), 1);
}

#[test]
fn check_reports_what_changed() {
    let node = Node::start();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let result = Call::add(&node, "a", &a).ok();
    Call::check(&node, "a", &b, &result).fails(101, "namespace is a different");
    Call::check(&node, "b", &b, &result).fails(3, "no address lease");
    a.ip("link set eth0 mtu 1400");
    a.ip("addr add 2001:db8:ffff::1/128 dev eth0");
    Call::check(&node, "a", &a, &result).ok();
    a.ip(&format!("addr del {}/128 dev eth0", address_of(&result)));
    Call::check(&node, "a", &a, &result).fails(101, "lacks the address");
}

#[test]
fn garbage_collection_keeps_what_is_listed_and_refuses_a_missing_list() {
    let node = Node::start();
    let pods = ["a", "b", "c"].map(|name| (name, node.pod(name)));
    let addresses = pods
        .each_ref()
        .map(|(name, pod)| address_of(&Call::add(&node, name, pod).ok()));
    let key = "cni.dev/valid-attachments";
    Call::gc(&node, &json!({})).fails(7, key);
    Call::gc(&node, &json!({key: null})).ok();
    assert_eq!(node.table(), addresses);
    let mut other = Call::gc(&node, &json!({key: []}));
    other = other.conf(&json!({"name": "another-network"}));
    other.ok();
    assert_eq!(node.table(), addresses);
    let kept = json!([{"containerID": "b", "ifname": "eth0"}]);
    Call::gc(&node, &json!({key: kept})).ok();
    assert_eq!(node.table(), [addresses[1]]);
    assert_eq!(node.links().len(), 1);
}

#[test]
fn a_pod_whose_namespace_died_is_found_without_delete() {
    let node = Node::start();
    let pod = node.pod("a");
    Call::add(&node, "a", &pod).ok();
    drop(pod);
    wait("the kernel removes the veth", || node.links().is_empty());
    Call::gc(&node, &json!({"cni.dev/valid-attachments": null})).ok();
    assert!(node.table().is_empty());
    let again = node.pod("a");
    Call::add(&node, "a", &again).ok();
    drop(again);
    wait("the kernel removes the veth", || node.links().is_empty());
    let third = node.pod("a");
    Call::add(&node, "a", &third).ok();
    assert_eq!(node.table().len(), 1);
}

#[test]
fn a_restarted_agent_keeps_pods_and_heals_what_was_half_done() {
    let mut node = Node::start();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let result = Call::add(&node, "a", &a).ok();
    Call::add(&node, "b", &b).ok();
    node.stop();
    let journal = node.state_dir().join("leases");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let opening = Opening::new(Node::prefix(), BootId::parse(&boot).unwrap());
    let leases = Leases::open(&journal, opening).unwrap();
    let key = |container: &str| LeaseKey {
        network: "pods".into(),
        container: container.into(),
        ifname: "eth0".into(),
    };
    let request = LeaseRequest::new(key("half-made"), NetnsId::default());
    leases.reserve(&request, since_boot()).unwrap();
    let half_gone = leases.lease(&key("b")).unwrap().suffix;
    leases.release(half_gone).unwrap();
    drop(leases);
    node.restart();
    assert_eq!(node.table(), [address_of(&result)]);
    assert_eq!(node.links().len(), 1);
    Call::check(&node, "a", &a, &result).ok();
    assert_eq!(
        dial(node.netns(), &a, address_of(&result)).unwrap(),
        Node::address()
    );
}

#[test]
fn a_lost_journal_does_not_lose_the_pods() {
    let mut node = Node::start();
    let pod = node.pod("a");
    let result = Call::add(&node, "a", &pod).ok();
    node.stop();
    std::fs::remove_file(node.state_dir().join("leases")).unwrap();
    node.restart();
    assert_eq!(node.table(), [address_of(&result)]);
    Call::check(&node, "a", &pod, &result).ok();
    Call::del(&node, "a").ok();
    assert!(node.links().is_empty());
}

#[test]
fn without_an_agent_add_asks_to_try_again_and_delete_is_done_later() {
    let mut node = Node::start();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let result = Call::add(&node, "a", &a).ok();
    node.stop();
    Call::add(&node, "b", &b).fails(11, "no dormouse-agent answers");
    Call::check(&node, "a", &a, &result).fails(11, "no dormouse-agent answers");
    Call::status(&node).fails(50, "no dormouse-agent answers");
    Call::del(&node, "a").ok();
    Call::del(&node, "a").ok();
    node.restart();
    assert!(node.table().is_empty() && node.links().is_empty());
    assert_eq!(
        std::fs::read_dir(node.state_dir().join("pending-del"))
            .unwrap()
            .count(),
        0
    );
    Call::status(&node).ok();
}

#[test]
fn an_add_whose_caller_disconnects_is_undone() {
    let node = Node::start();
    let pod = node.pod("a");
    let attachment = Attachment {
        network: "pods".into(),
        container_id: "a".into(),
        ifname: "eth0".into(),
    };
    let stream = UnixStream::connect(node.socket()).unwrap();
    let request = Request::Add {
        attachment,
        wanted: Wanted::default(),
    };
    wire::send_request(&stream, &request, Some(pod.file().as_fd())).unwrap();
    drop(stream);
    wait("the ADD is counted as failed", || {
        node.counted("ADD", 11) == 1
    });
    assert!(node.table().is_empty() && node.links().is_empty());
    Call::add(&node, "a", &pod).ok();
}

#[test]
fn pods_that_come_at_once_all_get_their_own_address() {
    let node = Node::start();
    let pods: Vec<_> = (0..24)
        .map(|i| (format!("c{i}"), node.pod(&format!("c{i}"))))
        .collect();
    let mut addresses: Vec<Ipv6Addr> = std::thread::scope(|scope| {
        let calls: Vec<_> = pods
            .iter()
            .map(|(name, pod)| scope.spawn(|| address_of(&Call::add(&node, name, pod).ok())))
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    addresses.sort();
    assert_eq!(node.table(), addresses);
    addresses.dedup();
    assert_eq!(addresses.len(), 24);
}

/// The agent's answer to these bytes; empty when it closes the connection.
fn send_raw(node: &Node, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(node.socket()).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    // Closing a socket with unread bytes resets the connection.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn requests_of_other_programs_than_the_plugin_are_checked_too() {
    let mut node = Node::start();
    let framed = |json: &str| {
        let length = u32::try_from(json.len()).unwrap().to_be_bytes();
        [&[1][..], &length, json.as_bytes()].concat()
    };
    for garbage in [
        &b""[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[9, 0, 0, 0, 2, b'{', b'}'],
        &[1, 0xff, 0xff, 0xff, 0xff],
        &[1, 0, 0, 1, 0, b'{'],
        &framed("{}"),
        &framed(r#"{"command":"ADD","attachment":{"network":"n"}}"#),
    ] {
        assert_eq!(send_raw(&node, garbage), b"", "{garbage:?}");
    }
    let pod = node.pod("a");
    let ask = |network: &str, container: &str, ifname: &str| {
        let attachment = Attachment {
            network: network.to_owned(),
            container_id: container.to_owned(),
            ifname: ifname.to_owned(),
        };
        let request = Request::Add {
            attachment,
            wanted: Wanted::default(),
        };
        let stream = UnixStream::connect(node.socket()).unwrap();
        wire::send_request(&stream, &request, Some(pod.file().as_fd())).unwrap();
        wire::receive_reply(&stream).unwrap()
    };
    for (network, container, ifname) in [
        ("pods", "c".repeat(5_000).as_str(), "eth0"),
        ("pods", "../c", "eth0"),
        ("a b", "c", "eth0"),
        ("pods", "c", ""),
        ("pods", "c", "sixteen-letters-"),
        ("pods:ipam", "c", "eth0"),
    ] {
        let reply = ask(network, container, ifname);
        assert!(
            matches!(&reply, Reply::Failed(error) if error.code == 4),
            "{reply:?}"
        );
    }
    assert!(node.table().is_empty() && node.links().is_empty());
    Call::add(&node, "a", &pod).ok();
    let before = node.table();
    node.restart();
    assert_eq!(node.table(), before, "the journal is whole");
}

#[test]
fn bad_requests_are_refused_by_name_and_change_nothing() {
    let node = Node::start();
    let pod = node.pod("a");
    let add = || Call::add(&node, "a", &pod);
    add()
        .env("CNI_COMMAND", "FROB")
        .fails(4, "unknown CNI_COMMAND `FROB`");
    add()
        .env("CNI_CONTAINERID", "")
        .env("CNI_NETNS", "")
        .fails(4, "CNI_CONTAINERID, CNI_NETNS");
    add().env("CNI_IFNAME", "a/b").fails(4, "CNI_IFNAME");
    add()
        .env("CNI_NETNS", "/nowhere")
        .fails(4, "CNI_NETNS `/nowhere`");
    add()
        .env("CNI_NETNS", "/etc/hostname")
        .fails(4, "not a network namespace");
    add()
        .env("CNI_NETNS", node.netns().path().to_str().unwrap())
        .fails(8, "node's own");
    add().conf(&json!({"name": null})).fails(7, "`name`");
    add()
        .conf(&json!({"cniVersion": "9.9.9"}))
        .fails(1, "9.9.9");
    add().stdin("{").fails(6, "not a JSON object");
    add().conf(&json!({"ipMasq": true})).fails(2, "`ipMasq`");
    let version = add().env("CNI_COMMAND", "VERSION").stdin("garbage").ok();
    assert_eq!(version["supportedVersions"].as_array().unwrap().len(), 7);
    assert!(node.table().is_empty() && node.links().is_empty());
    assert!(netns::identity(pod.file()).is_ok());
}
