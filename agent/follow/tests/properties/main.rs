//! Whatever a server does, a follower holds the server's objects once the server answers again, and never deletes one that
//! the server always had.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_agent_follow::{Event, Follower, Head, Scope};
use k8s_openapi::api::core::v1::Service;
use proptest::collection::vec;
use proptest::prelude::*;

use server::{PERMANENT, Server};

/// Exchanges after which a follower of a server that answers holds everything.
const SETTLED_AFTER: usize = 12;

/// A change at the server.
#[derive(Clone, Debug)]
enum Change {
    /// Sets an object, one of a few.
    Put(u8),
    /// Deletes an object, if it exists and is not permanent.
    Delete(u8),
    /// Loses the events, as a restart does.
    Forget,
    /// Comes back with older versions and these objects deleted.
    Restore(Vec<u8>),
    /// Gets or loses streaming lists.
    Streams(bool),
}

/// What happens to a response.
#[derive(Clone, Debug)]
enum Mishap {
    None,
    /// No response.
    Unreachable,
    /// It breaks off after so many bytes.
    CutAfter(usize),
    /// It is a refusal.
    Status(u16),
    /// So many of the lines of a watch or streaming list, and an ERROR event.
    Error(usize, u16),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0..8_u8).prop_map(Change::Put),
        4 => (0..8_u8).prop_map(Change::Delete),
        1 => Just(Change::Forget),
        1 => vec(0..8_u8, 0..3).prop_map(Change::Restore),
        1 => any::<bool>().prop_map(Change::Streams),
    ]
}

fn mishap() -> impl Strategy<Value = Mishap> {
    let code = prop::sample::select(vec![400, 401, 403, 410, 422, 429, 500, 503, 504]);
    prop_oneof![
        4 => Just(Mishap::None),
        1 => Just(Mishap::Unreachable),
        4 => (0..900_usize).prop_map(Mishap::CutAfter),
        1 => code.clone().prop_map(Mishap::Status),
        1 => (0..6_usize, code).prop_map(|(lines, code)| Mishap::Error(lines, code)),
    ]
}

/// A follower, and what it has passed on.
struct Client {
    follower: Follower<Service>,
    held: BTreeMap<String, Service>,
    lists: usize,
}

impl Client {
    fn new() -> Self {
        Self {
            follower: Follower::new(Scope::proxied::<Service>()),
            held: BTreeMap::new(),
            lists: 0,
        }
    }

    fn exchange(&mut self, server: &Server, mishap: &Mishap, part: usize) {
        let request = self.follower.request(Duration::from_mins(5));
        let (held, lists) = (&mut self.held, &mut self.lists);
        let mut take = |event| match event {
            Event::Applied(service) => {
                held.insert(name(&service), service);
            }
            Event::Deleted(key) => {
                assert!(
                    !PERMANENT.contains(&&*key.name),
                    "{key:?} was never deleted"
                );
                held.remove(&*key.name).unwrap();
            }
            Event::Listed { objects } => {
                *lists += 1;
                assert_eq!(objects, held.len());
            }
            Event::Unreadable { key, what } => panic!("{key:?}: {what}"),
        };
        let (mut status, mut body) = server.respond(&request.target);
        let mut whole = true;
        match mishap {
            Mishap::Unreachable => {
                self.follower.end(false, &mut take);
                return;
            }
            Mishap::CutAfter(length) if *length < body.len() => {
                body.truncate(*length);
                whole = false;
            }
            Mishap::None | Mishap::CutAfter(_) => {}
            Mishap::Status(code) => (status, body) = (*code, "no".to_owned()),
            Mishap::Error(lines, code) => {
                if status == 200 && request.lasts.is_some() {
                    let error = format!("{{\"type\":\"ERROR\",\"object\":{{\"code\":{code}}}}}\n");
                    let kept = body.split_inclusive('\n').take(*lines);
                    body = kept.chain([error.as_str()]).collect();
                }
            }
        }
        self.follower.head(Head {
            status,
            gzip: false,
            retry_after: None,
        });
        for part in body.as_bytes().chunks(part) {
            if !self.follower.body(part, &mut take) {
                break;
            }
        }
        self.follower.end(whole, &mut take);
    }
}

fn name(service: &Service) -> String {
    service.metadata.name.clone().unwrap()
}

fn apply(server: &mut Server, change: &Change) {
    match change {
        Change::Put(number) => server.put(*number),
        Change::Delete(number) => server.delete(*number),
        Change::Forget => server.forget(),
        Change::Restore(deleted) => server.restore(deleted),
        Change::Streams(streams) => server.streams = *streams,
    }
}

proptest! {
    #[test]
    fn a_follower_ends_with_the_servers_objects(
        steps in vec((vec(change(), 0..4), mishap(), 1..300_usize), 0..40),
    ) {
        let (mut server, mut client) = (Server::new(), Client::new());
        for (changes, mishap, part) in &steps {
            for change in changes {
                apply(&mut server, change);
            }
            client.exchange(&server, mishap, *part);
        }
        for _ in 0..SETTLED_AFTER {
            client.exchange(&server, &Mishap::None, 64);
        }
        prop_assert_eq!(&client.held, server.objects());
        let lists = client.lists;
        prop_assert!(lists > 0);
        // A change comes by a watch, without a list.
        server.put(3);
        client.exchange(&server, &Mishap::None, 64);
        client.exchange(&server, &Mishap::None, 64);
        prop_assert_eq!(&client.held, server.objects());
        prop_assert_eq!(client.lists, lists);
    }
}
