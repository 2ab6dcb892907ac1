//! Requests for apps without a free slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse_activator::Report;
use http::Response;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::rig::{Rig, backend, path_backend, text};

#[tokio::test]
async fn a_parked_request_is_answered_when_its_pod_is_ready() {
    let mut rig = Rig::start();
    rig.configure(|_route| {});
    let reply = rig.spawn_get("/first");
    let Report::Demand {
        vip: 1,
        at: demanded,
    } = rig.report().await
    else {
        panic!("no demand");
    };
    rig.parked(1).await;
    let pod = path_backend().await;
    rig.configure(|route| route.backends = vec![pod]);
    let reply = reply.await.unwrap();
    assert_eq!((reply.status(), reply.body.as_str()), (200, "/first"));
    let Report::FirstByte { vip: 1, at } = rig.report().await else {
        panic!("no first byte");
    };
    assert!(at >= demanded);
}

#[tokio::test]
async fn a_demand_is_repeated_while_there_is_no_pod() {
    let mut rig = Rig::start();
    rig.configure(|_route| {});
    let _waiting = rig.spawn_get("/");
    let (Report::Demand { at: first, .. }, Report::Demand { at: second, .. }) =
        (rig.report().await, rig.report().await)
    else {
        panic!("not two demands");
    };
    let apart = second.since(first);
    assert!(apart >= Duration::from_millis(990), "{apart:?}");
}

#[tokio::test]
async fn a_demand_is_raised_when_the_last_pod_of_parked_requests_is_removed() {
    let mut rig = Rig::start();
    let (pod, _running) = stuck_backend().await;
    rig.configure(|route| (route.container_concurrency, route.backends) = (1, vec![pod]));
    let _running = rig.spawn_get("/runs");
    let _waiting = rig.spawn_get("/waits");
    rig.parked(1).await;
    rig.configure(|route| route.container_concurrency = 1);
    let report = rig.report().await;
    assert!(
        matches!(report, Report::Demand { vip: 1, .. }),
        "{report:?}"
    );
}

/// A pod that never responds, and the number of its requests.
async fn stuck_backend() -> (std::net::SocketAddrV6, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let pod = backend(move |_request| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    });
    (pod.await, count)
}

#[tokio::test]
async fn parked_requests_are_released_in_order_of_arrival() {
    let rig = Rig::start();
    rig.configure(|_route| {});
    let mut replies = Vec::new();
    for number in 0..8 {
        replies.push(rig.spawn_get(&format!("/{number}")));
        rig.parked(number + 1).await;
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let pod = backend(move |request| {
        let path = request.uri().path().to_owned();
        seen.lock().push(path.clone());
        async move { Response::new(text(path)) }
    })
    .await;
    rig.configure(|route| (route.container_concurrency, route.backends) = (1, vec![pod]));
    for (number, reply) in replies.into_iter().enumerate() {
        assert_eq!(reply.await.unwrap().body, format!("/{number}"));
    }
    let wanted: Vec<String> = (0..8).map(|number| format!("/{number}")).collect();
    assert_eq!(*order.lock(), wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_never_has_more_requests_than_its_concurrency() {
    let rig = Rig::start();
    let (mut pods, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        peaks.push(Arc::clone(&peak));
        let pod = backend(move |_request| {
            let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
            async move {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // The app's work: other requests arrive meanwhile.
                sleep(Duration::from_millis(5)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Response::new(text("done"))
            }
        });
        pods.push(pod.await);
    }
    rig.configure(|route| (route.container_concurrency, route.backends) = (3, pods));
    let replies: Vec<_> = (0..50).map(|_| rig.spawn_get("/")).collect();
    for reply in replies {
        assert_eq!(reply.await.unwrap().status(), 200);
    }
    let peaks: Vec<_> = peaks
        .iter()
        .map(|peak| peak.load(Ordering::SeqCst))
        .collect();
    assert_eq!(
        peaks,
        [3, 3],
        "each backend is used up to its limit and not beyond"
    );
}

#[tokio::test]
async fn the_average_concurrency_includes_parked_requests() {
    let rig = Rig::start();
    rig.configure(|_route| {});
    let first = rig.spawn_get("/a");
    let second = rig.spawn_get("/b");
    rig.parked(2).await;
    rig.stat();
    sleep(Duration::from_millis(20)).await;
    let stat = rig.stat();
    assert!((stat.concurrency - 2.0).abs() < 1e-9, "{stat:?}");
    let pod = path_backend().await;
    rig.configure(|route| route.backends = vec![pod]);
    first.await.unwrap();
    second.await.unwrap();
    assert_eq!(rig.stat().responses_total, 2);
}

#[tokio::test]
async fn requests_of_a_removed_app_are_answered_not_found() {
    let rig = Rig::start();
    rig.configure(|_route| {});
    let waiting = rig.spawn_get("/");
    rig.parked(1).await;
    rig.handle.absent(1);
    let reply = waiting.await.unwrap();
    assert_eq!(reply.status(), 404);
    assert!(reply.body.contains("default/test was removed"), "{reply:?}");
}
