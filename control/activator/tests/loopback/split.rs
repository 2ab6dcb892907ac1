//! Traffic splits: a request of one VIP goes to the app that its split selects, and wakes that one only.

use std::net::SocketAddrV6;
use std::sync::Arc;

use dormouse_activator::{Report, Split, SplitTarget, Sticky};
use http::Response;

use crate::rig::{Rig, VIP, backend, text, until};

const OTHER: u32 = 2;

async fn named_backend(name: &'static str) -> SocketAddrV6 {
    backend(move |_request| async move { Response::new(text(name)) }).await
}

fn split(weights: [u32; 2], sticky: Option<Sticky>) -> Split {
    let targets = [VIP, OTHER].into_iter().zip(weights);
    let targets = targets.map(|(vip, weight)| SplitTarget { vip, weight });
    Split {
        targets: targets.collect(),
        sticky,
    }
}

/// An activator with the VIP split over itself and another app, both with a pod that answers its name.
async fn split_rig(weights: [u32; 2], sticky: Option<Sticky>) -> Rig {
    let rig = Rig::start();
    let (own, other) = (named_backend("own").await, named_backend("other").await);
    rig.handle.configure(OTHER, {
        let mut route = rig.route();
        route.backends = vec![other];
        route
    });
    rig.configure(|route| {
        route.backends = vec![own];
        route.split = Some(split(weights, sticky));
    });
    rig
}

/// The bodies of 100 requests of one connection, each with this header line.
async fn bodies(rig: &Rig, line: &str) -> Vec<String> {
    let mut client = rig.connect().await;
    let mut bodies = Vec::new();
    for _ in 0..100 {
        client
            .send(&format!("GET / HTTP/1.1\r\nhost: a\r\n{line}\r\n"))
            .await;
        bodies.push(client.reply().await.body);
    }
    bodies
}

#[tokio::test]
async fn each_request_of_a_connection_goes_to_a_target_by_weight_and_counts_there() {
    let rig = split_rig([90, 10], None).await;
    let bodies = bodies(&rig, "").await;
    let others = bodies.iter().filter(|body| *body == "other").count();
    assert!((9..=11).contains(&others), "{others}");
    let stats = rig.handle.take_stats();
    let of = |vip| stats.iter().find(|(known, _)| *known == vip).unwrap().1;
    assert!((of(VIP).requests + of(OTHER).requests - 100.0).abs() < 0.1);
    let other = of(OTHER).requests;
    assert!((9.0..=11.0).contains(&other), "{other}");
}

#[tokio::test]
async fn requests_with_one_cookie_stay_at_one_target() {
    let rig = split_rig([50, 50], Some(Sticky::Cookie("user".into()))).await;
    let mut seen = std::collections::BTreeSet::new();
    for user in 0..10 {
        let bodies = bodies(&rig, &format!("cookie: user={user}\r\n")).await;
        assert!(bodies.iter().all(|body| *body == bodies[0]), "user {user}");
        seen.extend(bodies);
    }
    assert_eq!(seen.len(), 2);
}

#[tokio::test]
async fn a_request_parks_at_its_target_and_wakes_no_other() {
    let mut rig = Rig::start();
    rig.configure(|route| route.split = Some(split([0, 100], None)));
    let reply = rig.spawn_get("/");
    let report = rig.report().await;
    let Report::Want {
        vip: OTHER, port, ..
    } = report
    else {
        panic!("{report:?}");
    };
    assert_eq!(port, rig.address.port());
    rig.handle.configure(OTHER, rig.route());
    let report = rig.report().await;
    assert!(
        matches!(report, Report::Demand { vip: OTHER, .. }),
        "{report:?}"
    );
    let pod = named_backend("other").await;
    let mut route = rig.route();
    route.backends = vec![pod];
    rig.handle.configure(OTHER, route);
    assert_eq!(reply.await.unwrap().body, "other");
    let report = rig.report().await;
    assert!(
        matches!(report, Report::FirstByte { vip: OTHER, .. }),
        "{report:?}"
    );
    assert!(
        rig.reports.try_recv().is_err(),
        "the VIP's own app was asked for"
    );
}

#[tokio::test]
async fn clients_reconnect_when_all_targets_are_served_directly() {
    let rig = Arc::new(split_rig([50, 50], None).await);
    let closes = |reply: &crate::rig::Reply| reply.has("connection: close");
    let serve = |vip: u32, backends: Vec<SocketAddrV6>| {
        let mut route = rig.route();
        (route.backends, route.serving) = (backends, true);
        route.split = (vip == VIP).then(|| split([50, 50], None));
        rig.handle.configure(vip, route);
    };
    let own = named_backend("own").await;
    serve(VIP, vec![own]);
    for _ in 0..4 {
        assert!(!closes(&rig.get("/").await), "one target is not served");
    }
    serve(OTHER, vec![own]);
    assert!(closes(&rig.get("/").await));
}

#[tokio::test]
async fn a_split_stays_known_while_its_app_sleeps() {
    let rig = Rig::start();
    rig.configure(|route| route.split = Some(split([0, 100], None)));
    rig.handle.forget_idle();
    assert_eq!(rig.handle.apps(), 1);
    rig.configure(|_route| {});
    until("the app is forgotten", || {
        rig.handle.forget_idle();
        rig.handle.apps() == 0
    })
    .await;
}

#[tokio::test]
async fn an_app_that_fell_asleep_unseen_is_asked_for_instead_of_what_it_was_split_over() {
    let mut rig = split_rig([0, 100], None).await;
    let mut client = rig.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(client.reply().await.body, "other");
    // The link has lost its stream meanwhile, and the split has ended: control names awake apps only.
    rig.handle.asleep(VIP);
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let report = rig.report().await;
    assert!(
        matches!(report, Report::Want { vip: VIP, .. }),
        "{report:?}"
    );
    let own = named_backend("own").await;
    rig.configure(|route| route.backends = vec![own]);
    assert_eq!(client.reply().await.body, "own");
}

/// An activator with all requests of the VIP split to an app that sleeps, and a request that waits there.
async fn parked_at_target(is_known: bool) -> (Rig, crate::rig::Client) {
    let mut rig = Rig::start();
    if is_known {
        rig.handle.configure(OTHER, rig.route());
    }
    let own = named_backend("own").await;
    rig.configure(|route| {
        route.backends = vec![own];
        route.split = Some(split([0, 100], None));
    });
    let mut client = rig.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let report = rig.report().await;
    assert!(
        matches!(
            report,
            Report::Want { vip: OTHER, .. } | Report::Demand { vip: OTHER, .. }
        ),
        "{report:?}"
    );
    (rig, client)
}

#[tokio::test]
async fn a_request_at_a_target_that_is_removed_goes_where_the_present_split_sends_it() {
    for is_known in [true, false] {
        let (rig, mut client) = parked_at_target(is_known).await;
        let own = named_backend("present").await;
        rig.configure(|route| route.backends = vec![own]);
        rig.handle.absent(OTHER);
        assert_eq!(client.reply().await.body, "present");
    }
}

#[tokio::test]
async fn a_request_at_a_target_that_the_present_split_has_not_replaced_is_answered_404() {
    let (rig, mut client) = parked_at_target(false).await;
    rig.handle.absent(OTHER);
    assert_eq!(client.reply().await.status(), 404);
}
