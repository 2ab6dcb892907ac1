//! The order of requests: each watch after a list or a check, and a list with the reason for it.

use std::time::Duration;

use dormouse_agent_follow::{Fault, Follower, Head, Relist, Request, Scope};
use k8s_openapi::api::core::v1::Service;

/// A follower, and the server's responses to it.
struct Client(Follower<Service>);

impl Client {
    fn new() -> Self {
        Self(Follower::new(Scope::proxied::<Service>()))
    }

    fn request(&mut self) -> Request {
        self.0.request(Duration::from_mins(5))
    }

    /// Receives a response. Returns what is to be reported.
    fn receive(&mut self, status: u16, body: &str) -> Option<Fault> {
        self.0.head(Head {
            status,
            gzip: false,
            retry_after: None,
        });
        self.0.body(body.as_bytes(), &mut |_| {});
        self.0.end(true, &mut |_| {}).fault
    }
}

const BOOKMARK: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n";

#[test]
fn a_watch_follows_a_check_that_the_server_still_has_the_version() {
    let mut client = Client::new();
    assert!(client.request().target.contains("sendInitialEvents=true"));
    assert_eq!(client.receive(200, BOOKMARK), None);
    for _ in 0..2 {
        let check = client.request();
        assert!(
            check
                .target
                .contains("&resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=1")
        );
        assert_eq!(client.receive(200, "{}"), None);
        assert!(
            client
                .request()
                .target
                .contains("&watch=true&allowWatchBookmarks=true&resourceVersion=7&")
        );
        assert_eq!(client.receive(200, ""), None);
    }
}

#[test]
fn a_watch_that_cannot_be_opened_is_checked_again() {
    let mut client = Client::new();
    client.request();
    client.receive(200, BOOKMARK);
    client.request();
    client.receive(200, "{}");
    assert!(client.request().target.contains("watch=true"));
    client.0.end(false, &mut |_| {});
    assert!(
        client
            .request()
            .target
            .contains("resourceVersionMatch=NotOlderThan")
    );
}

#[test]
fn a_list_has_its_reason() {
    let mut client = Client::new();
    assert_eq!(client.request().relist, Some(Relist::Start));
    assert_eq!(client.receive(200, ""), None);
    assert_eq!(client.request().relist, Some(Relist::Interrupted));
    assert_eq!(client.receive(200, BOOKMARK), None);
    for _ in 0..2 {
        assert_eq!(client.request().relist, None);
        assert_eq!(client.receive(504, "too large resource version"), None);
    }
    assert_eq!(client.request().relist, Some(Relist::Reset));
    assert_eq!(client.receive(422, "no streaming lists"), None);
    let page = client.request();
    assert_eq!(page.relist, Some(Relist::Reset));
    assert!(page.target.ends_with("&limit=500"));
    let refused = client.receive(403, "no");
    assert!(
        matches!(refused, Some(Fault::Forbidden { .. })),
        "{refused:?}"
    );
}
