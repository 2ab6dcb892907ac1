//! Server and client over a real gRPC connection on the loopback.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use dormouse_fleet::client::{Link, connect, endpoint};
use dormouse_fleet::node::Node;
use dormouse_fleet::proto::{Down, Entry, NodeConfig, PodSpec};
use dormouse_fleet::{Boottime, Event, Handle, Incoming, ServerConfig, serve, start};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const TIMEOUT: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_millis(600);

struct Control {
    handle: Handle,
    events: mpsc::Receiver<Event>,
    url: String,
    shutdown: CancellationToken,
}

async fn control() -> Control {
    let shutdown = CancellationToken::new();
    let config = ServerConfig {
        lease: LEASE,
        ..ServerConfig::new(1, NodeConfig::default())
    };
    let (handle, events) = start(config, shutdown.clone());
    handle.confirmed(Boottime(u64::MAX));
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(serve(
        Incoming::new(listener, 10),
        handle.clone(),
        shutdown.clone(),
    ));
    Control {
        handle,
        events,
        url,
        shutdown,
    }
}

impl Control {
    async fn event(&mut self) -> Event {
        timeout(TIMEOUT, self.events.recv())
            .await
            .expect("an event in time")
            .unwrap()
    }

    /// Waits until version 9 has settled.
    async fn settled(&mut self) {
        let mut event = self.event().await;
        while matches!(event, Event::Wanted { .. }) {
            event = self.event().await;
        }
        assert_eq!(event, Event::Settled { vip: 3, version: 9 });
    }
}

fn entry(version: u64) -> Entry {
    Entry {
        vip: 3,
        version,
        ..Entry::default()
    }
}

struct Agent {
    node: Node,
    link: Link,
}

impl Agent {
    async fn open(url: &str) -> Self {
        Self::open_with(url, &[]).await
    }

    async fn open_with(url: &str, installed: &[u32]) -> Self {
        let mut node = Node::new("n1".into(), "boot".into(), "0.1.0".into(), installed);
        let channel = connect(endpoint(url).unwrap()).await.unwrap();
        let link = Link::open(channel, node.open(Boottime::now()))
            .await
            .unwrap();
        Self { node, link }
    }

    async fn receive(&mut self) -> Down {
        timeout(TIMEOUT, self.link.receive())
            .await
            .expect("a message in time")
            .unwrap()
    }

    /// Receives one message and acknowledges it; true if it had an entry.
    async fn follow(&mut self) -> bool {
        let down = self.receive().await;
        let step = self.node.receive(down, Boottime::now()).unwrap();
        self.node.applied(step.seq);
        if let Some(up) = self.node.next(Boottime::now()) {
            self.link.send(up).unwrap();
        }
        !step.entries.is_empty()
    }

    fn want(&mut self, vip: u32) {
        self.node.missed(vip, Boottime::now());
        let later = Boottime::now() + Duration::from_millis(20);
        self.link.send(self.node.next(later).unwrap()).unwrap();
    }

    /// Acknowledges messages up to one with an entry.
    async fn entry(&mut self) {
        while !self.follow().await {}
    }
}

#[tokio::test]
async fn a_node_comes_up_follows_a_vip_and_settles_its_change() {
    let mut control = control().await;
    let mut agent = Agent::open(&control.url).await;
    assert!(matches!(control.event().await, Event::NodeUp { node, .. } if node == "n1"));
    agent.want(3);
    assert_eq!(control.event().await, Event::Wanted { vips: vec![3] });
    control.handle.publish(entry(8));
    agent.entry().await;
    control.handle.publish(Entry {
        vip: 3,
        version: 9,
        settle: true,
        ..Entry::default()
    });
    control.handle.settle(3, 9);
    agent.entry().await;
    control.settled().await;
    control.shutdown.cancel();
}

#[tokio::test]
async fn the_first_message_has_a_grant_and_the_pods() {
    let control = control().await;
    control.handle.sync_pods(
        "n1",
        vec![PodSpec {
            uid: "a".into(),
            ..PodSpec::default()
        }],
    );
    let mut agent = Agent::open(&control.url).await;
    let down = agent.receive().await;
    assert_eq!(down.seq, 1);
    assert!(down.config.is_some() && down.run_complete);
    assert_eq!(down.run[0].uid, "a");
    assert_eq!(down.grant.map(|grant| grant.lease_ms), Some(600));
}

#[tokio::test]
async fn a_disconnected_node_is_down_when_its_lease_has_expired() {
    let mut control = control().await;
    let mut agent = Agent::open(&control.url).await;
    assert!(agent.receive().await.grant.is_some());
    let left = Boottime::now();
    drop(agent);
    assert!(matches!(control.event().await, Event::NodeUp { .. }));
    assert_eq!(control.event().await, Event::NodeDown { node: "n1".into() });
    assert!(
        Boottime::now().since(left) > LEASE / 2,
        "not before its lease has expired"
    );
}

#[tokio::test]
async fn a_silent_follower_delays_a_removal_by_its_lease_only() {
    let mut control = control().await;
    let mut agent = Agent::open(&control.url).await;
    assert!(matches!(control.event().await, Event::NodeUp { .. }));
    agent.want(3);
    control.handle.publish(entry(8));
    agent.entry().await;
    control.handle.publish(Entry {
        vip: 3,
        version: 9,
        settle: true,
        ..Entry::default()
    });
    // The agent reads no further message.
    control.handle.settle(3, 9);
    control.settled().await;
}

#[tokio::test]
async fn a_second_stream_of_a_node_ends_the_first() {
    let control = control().await;
    let mut first = Agent::open(&control.url).await;
    first.receive().await;
    let mut second = Agent::open(&control.url).await;
    second.receive().await;
    let ended = timeout(TIMEOUT, first.link.receive())
        .await
        .expect("ends in time");
    assert!(ended.is_err());
    assert_eq!(control.handle.streams(), 1);
}

#[tokio::test]
async fn a_stream_without_hello_is_refused_with_the_reason() {
    let control = control().await;
    let channel = connect(endpoint(&control.url).unwrap()).await.unwrap();
    let refused = Link::open(channel, dormouse_fleet::proto::Up::default()).await;
    let error = refused.err().expect("refused");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("hello"), "{source}");
}

#[tokio::test]
async fn a_node_that_greets_a_restarted_control_before_it_has_published_keeps_its_entries() {
    let mut control = control().await;
    let mut agent = Agent::open_with(&control.url, &[3, 4]).await;
    assert!(matches!(control.event().await, Event::NodeUp { .. }));
    let wanted = Event::Wanted { vips: vec![3, 4] };
    assert_eq!(control.event().await, wanted);
    let first = agent.receive().await;
    assert!(first.entries.is_empty() && first.grant.is_none());
    control.handle.publish(entry(8));
    let second = agent.receive().await;
    assert_eq!((second.entries[0].version, second.grant), (8, None));
    control.handle.absent(4);
    let third = agent.receive().await;
    assert!(third.entries[0].gone && third.grant.is_some());
}
