//! A node between two controls, of which the newer has taken over: what the earlier one still sends changes nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use dormouse_fleet::node::{Node, StreamError};
use dormouse_fleet::proto::{Down, NodeConfig, PodSpec};
use dormouse_fleet::root::{Next, Root};
use dormouse_fleet::{Boottime, ServerConfig};

const NOW: Boottime = Boottime(10_000_000_000);
/// A VIP of which neither control has an entry yet, so that they grant no lease.
const VIP: u32 = 7;

fn root(epoch: u64) -> Root {
    let config = ServerConfig {
        lease: Duration::from_secs(3),
        epoch,
        node_config: NodeConfig::default(),
        boot_id: "boot".into(),
        reserved: Vec::new(),
        own: Vec::new(),
    };
    let mut root = Root::new(config, NOW);
    root.confirmed(NOW, NOW);
    root
}

/// The first message of a new stream, with the complete list of the node's pods.
fn greet(node: &mut Node, root: &mut Root, pods: Vec<PodSpec>) -> Down {
    node.close();
    let mut up = node.open(NOW);
    let session = root.hello(up.hello.take().unwrap()).unwrap().session;
    root.receive(session, up, NOW);
    root.sync_pods("n1", pods);
    match root.next(session, NOW) {
        Next::Send(down) => *down,
        other => panic!("expected a message, got {other:?}"),
    }
}

#[test]
fn a_list_of_an_earlier_control_does_not_stop_the_pods_of_the_newer_one() {
    let mut node = Node::new("n1".into(), "boot".into(), "0".into(), &[VIP]);
    let pod = PodSpec {
        uid: "of the newer control".into(),
        ..PodSpec::default()
    };
    let newer = greet(&mut node, &mut root(2), vec![pod]);
    assert!(newer.run_complete && newer.grant.is_none());
    assert_eq!(node.receive(newer, NOW).unwrap().run.len(), 1);
    let earlier = greet(&mut node, &mut root(1), Vec::new());
    assert!(earlier.run_complete && earlier.grant.is_none());
    let refused = StreamError::EpochOld { known: 2, got: 1 };
    assert_eq!(node.receive(earlier, NOW), Err(refused));
}
