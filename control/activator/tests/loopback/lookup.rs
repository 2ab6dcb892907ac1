//! Requests for VIPs that the activator does not know: asked for, parked until the answer, and forgotten afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_activator::Report;

use crate::rig::{Rig, path_backend, until};

#[tokio::test]
async fn a_request_for_an_unknown_app_is_parked_until_its_route_is_there() {
    let mut rig = Rig::start();
    let reply = rig.spawn_get("/first");
    let Report::Want { vip: 1, port, .. } = rig.report().await else {
        panic!("no want");
    };
    assert_eq!(port, rig.address.port());
    // Asleep: parked until a pod is ready.
    rig.configure(|_route| {});
    let report = rig.report().await;
    assert!(
        matches!(report, Report::Demand { vip: 1, .. }),
        "{report:?}"
    );
    let pod = path_backend().await;
    rig.configure(|route| route.backends = vec![pod]);
    assert_eq!(reply.await.unwrap().body, "/first");
    let report = rig.report().await;
    assert!(
        matches!(report, Report::FirstByte { vip: 1, .. }),
        "{report:?}"
    );
}

#[tokio::test]
async fn a_want_is_repeated_while_nobody_answers_and_then_refused_with_retry_after() {
    let mut rig = Rig::start_with(|config| config.wake_timeout = Duration::from_millis(1_200));
    let reply = rig.spawn_get("/");
    for _ in 0..2 {
        let report = rig.report().await;
        assert!(matches!(report, Report::Want { vip: 1, .. }), "{report:?}");
    }
    let reply = reply.await.unwrap();
    assert_eq!(reply.status(), 503);
    assert!(reply.has("retry-after: 1"), "{reply:?}");
    assert!(reply.body.contains("VIP index 1"), "{reply:?}");
}

#[tokio::test]
async fn requests_that_wait_for_a_route_keep_the_limits_of_parked_ones() {
    let mut rig = Rig::start_with(|config| config.queue_per_app_max = 2);
    let mut waiting = Vec::new();
    for _ in 0..2 {
        waiting.push(rig.spawn_get("/"));
    }
    rig.report().await;
    // Only a third request is refused; which one comes third is open.
    waiting.push(rig.spawn_get("/"));
    let reply = loop {
        let ended = waiting
            .iter()
            .position(tokio::task::JoinHandle::is_finished);
        match ended {
            Some(position) => break waiting.swap_remove(position).await.unwrap(),
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(reply.status(), 503);
    assert!(reply.body.contains("too many requests"), "{reply:?}");
    rig.handle.absent(1);
    for reply in waiting {
        assert_eq!(reply.await.unwrap().status(), 404);
    }
}

#[tokio::test]
async fn requests_that_wait_for_a_route_are_released_in_order_of_arrival() {
    let mut rig = Rig::start();
    let mut clients = Vec::new();
    for number in 0..8 {
        let mut client = rig.connect().await;
        client
            .send(&format!("GET /{number} HTTP/1.1\r\nhost: a\r\n\r\n"))
            .await;
        clients.push(client);
        // The next request is sent when this one has arrived: it is seen in the metrics only as parked.
        until("parked", || {
            rig.metric("dormouse_parked_requests") == number + 1
        })
        .await;
    }
    rig.report().await;
    rig.configure(|_route| {});
    rig.parked(8).await;
    let pod = path_backend().await;
    rig.configure(|route| (route.container_concurrency, route.backends) = (1, vec![pod]));
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.reply().await.body, format!("/{number}"));
    }
}

#[tokio::test]
async fn a_sleeping_app_is_forgotten_when_nothing_uses_it() {
    let mut rig = Rig::start();
    let mut client = rig.connect().await;
    client.send("GET /a HTTP/1.1\r\nhost: a\r\n\r\n").await;
    rig.report().await;
    let pod = path_backend().await;
    rig.configure(|route| route.backends = vec![pod]);
    assert_eq!(client.reply().await.body, "/a");
    rig.handle.asleep(1);
    rig.handle.forget_idle();
    assert_eq!(rig.handle.apps(), 1, "a connection uses it");
    drop(client);
    until("the app is forgotten", || {
        rig.handle.forget_idle();
        rig.handle.apps() == 0
    })
    .await;
    // It is asked for again.
    let reply = rig.spawn_get("/b");
    until("another want", || {
        matches!(rig.reports.try_recv(), Ok(Report::Want { vip: 1, .. }))
    })
    .await;
    rig.configure(|route| route.backends = vec![pod]);
    assert_eq!(reply.await.unwrap().body, "/b");
}

#[tokio::test]
async fn a_client_that_gives_up_leaves_nothing_behind() {
    let mut rig = Rig::start();
    let mut client = rig.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    rig.report().await;
    drop(client);
    until("the app is forgotten", || {
        rig.handle.forget_idle();
        rig.handle.apps() == 0
    })
    .await;
    assert_eq!(rig.metric("dormouse_parked_requests"), 0);
    assert_eq!(rig.metric("dormouse_parked_bytes"), 0);
}

#[tokio::test]
async fn a_port_that_no_app_uses_any_more_is_closed() {
    let rig = Rig::start();
    rig.configure(|_route| {});
    rig.handle.listen(&BTreeSet::new());
    until("the port is closed", || {
        std::net::TcpStream::connect(rig.address).is_err()
    })
    .await;
    rig.handle.listen(&BTreeSet::from([rig.address.port()]));
    let _reopened = rig.connect().await;
}
