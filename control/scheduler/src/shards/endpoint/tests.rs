//! Streams that a member refuses, and those that it accepts.

use dormouse_scheduler_shard::Epoch;
use futures::stream;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::Channel;

use super::*;
use crate::shards::peers::Peers;
use crate::shards::proto::members_client::MembersClient;
use crate::shards::{Role, in_plain_text};

const PROFILE: u64 = 7;

/// A member that listens, and what it has received.
struct World {
    me: Member,
    client: MembersClient<Channel>,
    inbox: mpsc::Receiver<Incoming>,
    registry: Registry,
}

impl World {
    async fn start() -> Self {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let listener = dormouse_fleet::Incoming::from(listener);
        let address = listener.url().unwrap();
        let (sender, inbox) = mpsc::channel(8);
        let mut registry = Registry::default();
        let metrics = Metrics::registered(Role::Shard, &mut registry);
        let endpoint = Endpoint::new(PROFILE, sender, metrics);
        let me = member("shard-a", 5, &address);
        endpoint.open(me.clone());
        let server = tonic::transport::Server::builder().add_service(endpoint.service());
        tokio::spawn(server.serve_with_incoming(listener.connections()));
        Self {
            me,
            client: MembersClient::connect(address).await.unwrap(),
            inbox,
            registry,
        }
    }

    async fn deliver(&mut self, contents: Vec<Content>) -> Result<(), Status> {
        let frames = contents.into_iter().map(|content| Frame {
            content: Some(content),
        });
        let frames = stream::iter(frames.collect::<Vec<_>>());
        self.client.deliver(frames).await.map(drop)
    }

    /// The status of a stream that is refused.
    async fn refused(&mut self, contents: Vec<Content>) -> (Code, String) {
        let status = self.deliver(contents).await.unwrap_err();
        (status.code(), status.message().to_owned())
    }

    fn greeting(&self) -> Content {
        greeting(&self.me, PROFILE)
    }
}

fn member(name: &str, incarnation: u64, address: &str) -> Member {
    Member {
        name: name.to_owned(),
        incarnation,
        address: address.to_owned(),
    }
}

fn greeting(to: &Member, profile: u64) -> Content {
    Content::Greeting(Greeting {
        from: Some(identity(&member("leader", 1, "http://[::1]:1"))),
        to: Some(identity(to)),
        profile,
    })
}

fn adopted(number: u64) -> Message {
    let epoch = Epoch {
        term: 1,
        view: number,
    };
    Message::Adopted(epoch)
}

fn encoded(message: &Message) -> Content {
    Content::Message(serde_json::to_vec(message).unwrap().into())
}

#[tokio::test]
async fn messages_arrive_in_their_order_and_a_frame_that_is_none_ends_the_stream() {
    let mut world = World::start().await;
    let contents = vec![
        world.greeting(),
        encoded(&adopted(1)),
        encoded(&adopted(2)),
        Content::Message(b"{\"View\":".to_vec().into()),
        encoded(&adopted(3)),
    ];
    let (code, message) = world.refused(contents).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(
        message.starts_with("frame 3 of leader cannot be decoded: EOF"),
        "{message}"
    );
    for number in [1, 2] {
        match world.inbox.recv().await {
            Some(Incoming::Message(from, message)) => {
                assert_eq!(from.name, "leader");
                assert_eq!(*message, adopted(number));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(world.inbox.try_recv().is_err());
    let mut page = String::new();
    encode(&mut page, &world.registry).unwrap();
    assert!(
        page.contains("dormouse_scheduler_member_refused_streams_total 1"),
        "{page}"
    );
}

#[tokio::test]
async fn a_stream_without_a_greeting_is_refused() {
    let mut world = World::start().await;
    let (code, message) = world.refused(vec![encoded(&adopted(1))]).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(message.contains("begins with a greeting"), "{message}");
    let (code, _) = world.refused(vec![]).await;
    assert_eq!(code, Code::InvalidArgument);
    let twice = vec![world.greeting(), world.greeting()];
    let (code, message) = world.refused(twice).await;
    assert_eq!(
        (code, message.as_str()),
        (Code::InvalidArgument, "frame 1 of leader is no message")
    );
}

#[tokio::test]
async fn a_stream_for_another_member_or_another_start_is_refused() {
    let mut world = World::start().await;
    let address = world.me.address.clone();
    for to in [
        member("shard-b", 5, &address),
        member("shard-a", 4, &address),
    ] {
        let (code, message) = world.refused(vec![greeting(&to, PROFILE)]).await;
        assert_eq!(code, Code::FailedPrecondition);
        assert!(message.contains("this is shard-a of start 5"), "{message}");
    }
}

#[tokio::test]
async fn a_stream_of_a_member_with_another_profile_is_refused() {
    let mut world = World::start().await;
    let to = world.me.clone();
    let (code, message) = world.refused(vec![greeting(&to, PROFILE + 1)]).await;
    assert_eq!(code, Code::FailedPrecondition);
    assert!(message.contains("have other profiles"), "{message}");
}

#[tokio::test]
async fn a_message_reaches_its_member_and_one_to_a_member_that_is_gone_is_dropped() {
    let mut world = World::start().await;
    let me = member("leader", 1, "http://[::1]:1");
    let mut registry = Registry::default();
    let metrics = Metrics::registered(Role::Relay, &mut registry);
    let mut peers = Peers::new(me, PROFILE, in_plain_text(), metrics);
    peers.send(vec![(world.me.clone(), adopted(1))]);
    let received = world.inbox.recv().await;
    assert!(matches!(received, Some(Incoming::Message(..))));
    let gone = member("shard-b", 1, "http://[::1]:1");
    let page = || {
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        page
    };
    let dropped = async {
        while !page().contains("dormouse_scheduler_member_dropped_messages_total 1") {
            peers.send(vec![(gone.clone(), adopted(1))]);
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(20), dropped).await;
    assert!(waited.is_ok(), "{}", page());
}
