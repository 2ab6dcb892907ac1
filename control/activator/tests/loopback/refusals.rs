//! Refusals: their statuses and messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_activator::{Fault, FaultKind, Problem, Report, Route, Unanswered};
use http::{Request, Response};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use crate::rig::{Rig, VIP, backend, http2_client, path_backend, reserve, text};

#[tokio::test]
async fn an_unknown_app_is_not_found() {
    let mut rig = Rig::start();
    let reply = rig.spawn_get("/");
    rig.report().await;
    rig.handle.absent(1);
    let reply = reply.await.unwrap();
    assert_eq!(reply.status(), 404);
    assert_eq!(reply.body, "dormouse: no app has VIP index 1\n");
}

#[tokio::test]
async fn an_app_is_served_on_its_own_port_only() {
    let rig = Rig::start();
    let mut elsewhere = rig.route();
    let (_reserved, port) = reserve();
    elsewhere.port = port;
    rig.handle.configure(1, elsewhere);
    let reply = rig.get("/").await;
    assert_eq!(reply.status(), 404);
    assert!(
        reply.body.contains(&format!("is served on port {port}")),
        "{reply:?}"
    );
}

#[tokio::test]
async fn an_address_outside_the_acting_prefix_is_not_found() {
    let rig = Rig::start_with(|config| config.acting_prefix = "2001:db8::".parse().unwrap());
    rig.configure(|_route| {});
    assert_eq!(rig.get("/").await.status(), 404);
}

#[tokio::test]
async fn a_full_queue_is_answered_with_retry_after() {
    let rig = Rig::start_with(|config| config.queue_per_app_max = 1);
    rig.configure(|_route| {});
    let _first = rig.spawn_get("/");
    rig.parked(1).await;
    let reply = rig.get("/").await;
    assert_eq!(reply.status(), 503);
    assert!(reply.has("retry-after: 1"), "{reply:?}");
    assert!(
        reply
            .body
            .contains("default/test has too many requests parked"),
        "{reply:?}"
    );
}

#[tokio::test]
async fn parked_bytes_are_limited_over_all_apps() {
    let rig = Rig::start_with(|config| config.parked_bytes_max = 12_000);
    rig.configure(|_route| {});
    let _waiting = [rig.spawn_get("/"), rig.spawn_get("/")];
    rig.parked(2).await;
    let reply = rig.get("/").await;
    assert_eq!(reply.status(), 503);
    assert!(reply.body.contains("too many bytes"), "{reply:?}");
}

#[tokio::test]
async fn a_parked_upload_over_http2_counts_with_what_its_client_may_send() {
    let rig = Rig::start_with(|config| config.parked_bytes_max = 150_000);
    rig.configure(|_route| {});
    let (mut sender, _connection) = http2_client(rig.address).await;
    let post = || Request::post("http://app.test/").body(vec![b'x'; 100_000].into());
    let _first = tokio::spawn(sender.send_request(post().unwrap()));
    rig.parked(1).await;
    assert_eq!(
        sender.send_request(post().unwrap()).await.unwrap().status(),
        503
    );
    let get = Request::get("http://app.test/").body(Vec::new().into());
    let _second = tokio::spawn(sender.send_request(get.unwrap()));
    rig.parked(2).await;
}

#[tokio::test]
async fn a_request_parked_until_its_timeout_is_answered_with_retry_after() {
    let rig = Rig::start();
    rig.configure(|route| route.timeout = Duration::from_millis(50));
    let reply = rig.get("/").await;
    assert_eq!(reply.status(), 503);
    assert!(reply.has("retry-after: 5"), "{reply:?}");
    assert!(reply.body.contains("no ready pod after 50ms"), "{reply:?}");
    rig.parked(0).await;
}

fn problem(retry_after: Option<Duration>) -> Problem {
    let message = "Error: the process exited with status 3".to_owned();
    Problem {
        message,
        retry_after,
    }
}

#[tokio::test]
async fn a_request_of_a_waking_app_is_parked_for_the_wake_timeout_and_gets_the_reason() {
    let rig = Rig::start();
    let wake_timeout = Duration::from_millis(50);
    rig.configure(|route| route.wake_timeout = wake_timeout);
    let reply = rig.get("/").await;
    assert_eq!(reply.status(), 503);
    assert!(reply.has("retry-after: 5"), "{reply:?}");
    assert_eq!(
        reply.body,
        "dormouse: app default/test has no ready pod after 50ms\n"
    );
    rig.configure(|route| {
        (route.wake_timeout, route.problem) = (wake_timeout, Some(problem(None)));
    });
    let reply = rig.get("/").await;
    assert_eq!(reply.status(), 503);
    assert!(reply.body.contains("exited with status 3"), "{reply:?}");
}

#[tokio::test]
async fn requests_of_a_failing_app_are_refused_at_once_until_it_has_a_backend() {
    let rig = Rig::start();
    rig.configure(|_route| {});
    let parked = rig.spawn_get("/parked");
    rig.parked(1).await;
    let failing = |route: &mut Route| route.problem = Some(problem(Some(Duration::from_secs(20))));
    rig.configure(failing);
    for reply in [parked.await.unwrap(), rig.get("/later").await] {
        assert_eq!(reply.status(), 503);
        assert!(reply.has("retry-after: 20"), "{reply:?}");
        assert_eq!(
            reply.body,
            "dormouse: app default/test does not start: Error: the process exited with status 3\n"
        );
    }
    rig.handle.asleep(VIP);
    let again = rig.spawn_get("/again");
    rig.parked(1).await;
    let pod = path_backend().await;
    rig.configure(|route| route.backends = vec![pod]);
    assert_eq!(again.await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_request_that_waits_for_a_slot_of_an_awake_app_has_the_requests_timeout() {
    let rig = Rig::start();
    let arrived = Arc::new(Notify::new());
    let notified = Arc::clone(&arrived);
    let pod = backend(move |_request| {
        notified.notify_one();
        std::future::pending()
    })
    .await;
    let busy = |route: &mut Route| {
        (route.container_concurrency, route.backends) = (1, vec![pod]);
    };
    rig.configure(busy);
    let _first = rig.spawn_get("/");
    arrived.notified().await;
    rig.configure(|route| {
        busy(route);
        (route.timeout, route.wake_timeout) =
            (Duration::from_millis(300), Duration::from_millis(20));
    });
    let second = rig.get("/").await;
    assert_eq!(second.status(), 503);
    assert!(second.body.contains("no free slot"), "{second:?}");
}

#[tokio::test]
async fn a_backend_that_does_not_respond_in_time_is_a_gateway_timeout() {
    let rig = Rig::start();
    let pod = backend(|_request| std::future::pending()).await;
    rig.configure(|route| {
        (route.timeout, route.backends) = (Duration::from_millis(100), vec![pod]);
    });
    let reply = rig.get("/").await;
    assert_eq!(reply.status(), 504);
    assert_eq!(
        reply.body,
        "dormouse: app default/test did not respond within 100ms\n"
    );
}

#[tokio::test]
async fn a_connection_without_a_complete_head_is_closed_in_time() {
    let rig = Rig::start_with(|config| config.header_timeout = Duration::from_millis(50));
    rig.configure(|_route| {});
    let mut silent = rig.connect().await;
    let mut slow = rig.connect().await;
    slow.send("GET / HT").await;
    assert!(silent.closes().await);
    assert!(slow.closes().await);
}

#[tokio::test]
async fn data_that_is_not_http_is_a_bad_request() {
    let rig = Rig::start();
    rig.configure(|_route| {});
    let mut client = rig.connect().await;
    client
        .stream
        .write_all(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        .await
        .unwrap();
    assert!(client.head().await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn connections_are_limited_by_their_memory_before_they_send_a_request() {
    let limited = || async {
        let rig = Rig::start_with(|config| config.connection_bytes_max = 26_000);
        let pod = path_backend().await;
        rig.configure(|route| route.backends = vec![pod]);
        rig
    };
    let rig = limited().await;
    let _silent = rig.connect().await;
    // It has memory for one more connection, but not for a protocol's buffers.
    assert_eq!(rig.get("/").await.status(), 503);
    let rig = limited().await;
    let mut served = rig.connect().await;
    served.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(served.reply().await.status(), 200);
    let mut idle = rig.connect().await;
    assert_eq!(idle.reply().await.status(), 503);
}

#[tokio::test]
async fn connections_above_an_apps_limit_are_refused_with_the_reason() {
    let rig = Rig::start_with(|config| config.connections_per_app_max = 1);
    rig.configure(|_route| {});
    let _first = rig.spawn_get("/");
    rig.parked(1).await;
    let mut second = rig.connect().await;
    assert_eq!(second.reply().await.status(), 503);
}

#[tokio::test]
async fn the_end_of_the_last_request_without_a_response_is_reported_with_its_reason() {
    let how = async |rig: &mut Rig| loop {
        if let Report::Unanswered { vip: VIP, how, .. } = rig.report().await {
            return how;
        }
    };
    let mut rig = Rig::start();
    rig.configure(|route| route.wake_timeout = Duration::from_millis(20));
    assert_eq!(rig.get("/").await.status(), 503);
    assert_eq!(how(&mut rig).await, Unanswered::TimedOut);
    rig.configure(|_route| {});
    let first = rig.spawn_get("/first");
    rig.parked(1).await;
    let second = rig.spawn_get("/second");
    rig.parked(2).await;
    first.abort();
    rig.parked(1).await;
    second.abort();
    assert_eq!(how(&mut rig).await, Unanswered::Abandoned);
    let third = rig.spawn_get("/third");
    rig.parked(1).await;
    rig.configure(|route| route.problem = Some(problem(Some(Duration::from_secs(1)))));
    assert_eq!(third.await.unwrap().status(), 503);
    assert_eq!(how(&mut rig).await, Unanswered::Failed);
    rig.configure(|_route| {});
    let silent = backend(|_request| std::future::pending()).await;
    rig.configure(|route| route.timeout = Duration::from_secs(2));
    let fourth = rig.spawn_get("/fourth");
    rig.parked(1).await;
    rig.configure(|route| route.backends = vec![silent]);
    assert_eq!(fourth.await.unwrap().status(), 504);
    assert_eq!(how(&mut rig).await, Unanswered::TimedOut);
    let mut rig = Rig::start_with(|config| config.parked_max = 0);
    rig.configure(|_route| {});
    assert_eq!(rig.get("/").await.status(), 503);
    assert_eq!(how(&mut rig).await, Unanswered::Refused);
}

/// The next report about a pod's answers: how it failed.
async fn fault(rig: &mut Rig) -> Option<Fault> {
    loop {
        if let Report::Answer {
            vip: VIP, fault, ..
        } = rig.report().await
        {
            return fault;
        }
    }
}

#[tokio::test]
async fn a_pod_that_does_not_answer_is_reported_before_the_end_of_its_wake_and_again_when_it_answers()
 {
    let mut rig = Rig::start();
    let is_well = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&is_well);
    let pod = backend(move |_request| {
        let answers = answers.load(Ordering::Relaxed);
        async move {
            if !answers {
                std::future::pending::<()>().await;
            }
            Response::new(text("well"))
        }
    })
    .await;
    rig.configure(|route| {
        route.timeout = Duration::from_millis(100);
        route.backends = vec![pod];
    });
    for _ in 0..2 {
        assert_eq!(rig.get("/").await.status(), 504);
    }
    is_well.store(true, Ordering::Relaxed);
    rig.configure(|route| route.backends = vec![pod]);
    for _ in 0..2 {
        assert_eq!(rig.get("/").await.status(), 200);
    }
    let failed = Fault {
        kind: FaultKind::NoResponse,
        message: "did not respond within 100ms".to_owned(),
    };
    assert_eq!(fault(&mut rig).await, Some(failed));
    assert_eq!(fault(&mut rig).await, None);
}

#[tokio::test]
async fn a_pod_whose_client_gave_up_is_reported_if_that_waited_as_long_as_for_a_pod() {
    let mut rig = Rig::start();
    let (begun, mut begins) = tokio::sync::mpsc::channel(1);
    let silent = backend(move |_request| {
        begun.try_send(()).unwrap();
        std::future::pending()
    })
    .await;
    rig.configure(|route| {
        route.wake_timeout = Duration::ZERO;
        route.backends = vec![silent];
    });
    let request = rig.spawn_get("/");
    begins.recv().await.unwrap();
    request.abort();
    let Some(failed) = fault(&mut rig).await else {
        panic!("it has not answered");
    };
    assert_eq!(failed.kind, FaultKind::NoResponse);
    assert_eq!(
        failed.message,
        "had not responded when the client gave up after 0ns"
    );
}
