//! Streams that end while they open.

use futures::FutureExt as _;
use tokio::sync::mpsc::Receiver;

use super::*;
use crate::config::ServerConfig;
use crate::handle::{EVENTS_MAX, start};
use crate::proto::{Beat, Entry, Hello, NodeConfig, NodeStatus};
use crate::state::State;

/// The VIP whose change waits.
const VIP: u32 = 3;

/// A stream's first message of a node that follows these VIPs.
fn first(follows: &[u32]) -> Up {
    let hello = Hello {
        node: "n".into(),
        follows: follows.to_vec(),
        ..Hello::default()
    };
    Up {
        hello: Some(hello),
        beat: Some(Beat { at_ns: 1 }),
        ..Up::default()
    }
}

fn entry(version: u64) -> Entry {
    Entry {
        vip: VIP,
        version,
        ..Entry::default()
    }
}

/// A fleet of which an agent with a lease uses an older version of the VIP than the one that is waited for. Its channel has room for
/// one event.
fn waiting() -> (Handle, Receiver<Event>, CancellationToken) {
    let shutdown = CancellationToken::new();
    let config = ServerConfig::new(1, NodeConfig::default());
    let (handle, events) = start(config.clone(), shutdown.clone());
    // It has started long ago: no lease of an earlier root is left.
    handle.shared.state.lock().fleet = State::new(config, Boottime(0));
    handle.confirmed(Boottime(u64::MAX));
    handle.publish(entry(8));
    let stream = OpenStream::open(&handle, (first(&[VIP]), Peer::default()), &shutdown);
    let stream = stream.now_or_never().unwrap().unwrap();
    let down = handle
        .shared
        .step(|guarded, now| guarded.fleet.root.next(stream.session, now));
    assert!(matches!(down, Next::Send(down) if down.grant.is_some()));
    handle.publish(entry(9));
    handle.settle(VIP, 9);
    for vip in 100.. {
        if events.len() == EVENTS_MAX - 1 {
            break;
        }
        handle.settle(vip, 1);
    }
    (handle, events, shutdown)
}

/// Whether a stream that begins with this message, and ends before it is open, settles the change.
async fn settles(up: Up) -> bool {
    let (handle, mut events, shutdown) = waiting();
    // The call is dropped after it has been polled once.
    drop(OpenStream::open(&handle, (up, Peer::default()), &shutdown).now_or_never());
    drop(handle);
    shutdown.cancel();
    while let Some(event) = events.recv().await {
        if event
            == (Event::Settled {
                vip: VIP,
                version: 9,
            })
        {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn what_a_hello_settles_is_reported_also_if_its_stream_does_not_open() {
    assert!(settles(first(&[])).await);
}

#[tokio::test]
async fn what_a_first_message_settles_is_reported_also_if_its_stream_does_not_open() {
    let up = Up {
        drop: vec![VIP],
        ..first(&[VIP])
    };
    assert!(settles(up).await);
}

async fn opens(handle: &Handle, node: &str, status: NodeStatus) -> Result<Arc<OpenStream>, Status> {
    let mut up = first(&[]);
    if let Some(hello) = &mut up.hello {
        node.clone_into(&mut hello.node);
        hello.status = Some(status);
    }
    OpenStream::open(handle, (up, Peer::default()), &CancellationToken::new()).await
}

#[tokio::test]
async fn a_node_is_refused_that_claims_what_another_has_or_what_no_node_can_have() {
    let (handle, _events) = start(
        ServerConfig::new(1, NodeConfig::default()),
        CancellationToken::new(),
    );
    let status = |prefix: &str, label: &str| NodeStatus {
        prefix: prefix.into(),
        address: String::new(),
        labels: [("disk".to_owned(), label.to_owned())].into(),
        ..NodeStatus::default()
    };
    let a = opens(&handle, "a", status("2001:db8:d0:0:0:1::/96", "ssd")).await;
    let a = a.ok().unwrap();
    for (prefix, label, says) in [
        ("2001:db8:d0:0:0:1::/96", "ssd", "node a has"),
        ("::/0", "ssd", "prefix"),
        ("2001:db8:d0:0:0:2::/96", "a b", "label"),
    ] {
        let refused = opens(&handle, "b", status(prefix, label))
            .await
            .err()
            .unwrap();
        assert!(refused.message().contains(says), "{refused}");
    }
    // Its agent starts again; after its lease the prefix is free.
    drop(a);
    let again = opens(&handle, "a", status("2001:db8:d0:0:0:1::/96", "ssd")).await;
    assert!(again.is_ok());
}
