//! Probes against servers of this process.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

fn probe(check: Check) -> Probe {
    Probe {
        check,
        period: Duration::from_millis(1),
        timeout: Duration::from_millis(100),
        failures_max: 3,
        initial_delay: Duration::ZERO,
    }
}

/// A start that has taken longer than usual already.
fn slow(probe: &Probe) -> Starting<'_> {
    Starting {
        probe,
        address: Ipv6Addr::LOCALHOST,
        since: Instant::now().checked_sub(PATIENCE).unwrap(),
        known: None,
    }
}

async fn unready(check: Check, listeners: &[&str]) -> Unready {
    let listeners = || listeners.iter().map(|text| listener(text)).collect();
    let probe = probe(check);
    let unready = timeout(LIMIT, slow(&probe).ready(listeners)).await;
    unready.unwrap().unwrap_err()
}

fn listener(text: &str) -> Listener {
    let socket: SocketAddr = text.parse().unwrap();
    Listener {
        port: socket.port(),
        address: socket.ip(),
    }
}

/// A server that answers each connection with this text, and its port.
async fn server(answers: &'static [&'static str]) -> u16 {
    let server = TcpListener::bind("[::1]:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    tokio::spawn(async move {
        for answer in answers.iter().cycle() {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut request = [0; 256];
            let _ = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    port
}

fn get(port: u16) -> Check {
    let path = "/up".into();
    Check::Get { port, path }
}

#[tokio::test]
async fn a_pod_becomes_ready_when_its_port_is_opened_and_fails_when_it_is_closed() {
    let server = TcpListener::bind("[::1]:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let probe = probe(Check::Connect(port));
    let ready = timeout(LIMIT, slow(&probe).ready(Vec::new)).await;
    assert_eq!(ready.unwrap(), Ok(()));
    drop(server);
    let failing = failing(&probe, Ipv6Addr::LOCALHOST, Vec::new);
    let unready = timeout(LIMIT, failing).await.unwrap();
    assert_eq!(unready.message, format!("nothing listens on port {port}"));
}

#[tokio::test]
async fn an_error_response_is_not_ready_and_a_short_start_needs_no_reason() {
    let port = server(&["HTTP/1.1 503 Busy\r\n\r\n", "HTTP/1.1 204 Fine\r\n\r\n"]).await;
    let probe = probe(get(port));
    let starting = Starting {
        since: Instant::now(),
        ..slow(&probe)
    };
    assert_eq!(
        timeout(LIMIT, starting.ready(Vec::new)).await.unwrap(),
        Ok(())
    );
}

#[tokio::test]
async fn a_slow_start_has_the_reason_of_its_last_probe() {
    let port = server(&["HTTP/1.1 500 Oops\r\n\r\ndb is down\n"]).await;
    let answered = unready(get(port), &[]).await;
    assert_eq!(answered.reason, "ProbeFailed");
    assert_eq!(
        answered.message,
        format!("GET /up on port {port} is answered 500 Oops: db is down")
    );
    let silent = TcpListener::bind("[::1]:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let silent = unready(get(port), &[]).await;
    assert_eq!(silent.reason, "NoResponse");
    assert!(
        silent.message.contains("not answered within 100ms"),
        "{silent:?}"
    );
}

#[tokio::test]
async fn the_same_reason_is_reported_once() {
    let answers = &[
        "HTTP/1.1 500 Oops\r\n\r\n1",
        "HTTP/1.1 500 Oops\r\n\r\n2",
        "HTTP/1.1 200 OK\r\n\r\n",
    ];
    let probe = probe(get(server(answers).await));
    let first = timeout(LIMIT, slow(&probe).ready(Vec::new)).await.unwrap();
    let first = first.unwrap_err();
    let starting = Starting {
        known: Some(&first),
        ..slow(&probe)
    };
    assert_eq!(
        timeout(LIMIT, starting.ready(Vec::new)).await.unwrap(),
        Ok(())
    );
}

#[tokio::test]
async fn a_closed_port_is_explained_by_the_sockets_of_the_process() {
    let port = {
        let unused = TcpListener::bind("[::1]:0").await.unwrap();
        unused.local_addr().unwrap().port()
    };
    let check = |listeners: &'static [&'static str], message: &'static str| async move {
        let listeners = listeners.iter().map(|text| listener(text)).collect();
        let address = "2001:db8::7".parse().unwrap();
        let unready = Unready::new(&Check::Connect(8081), address, Failed::Closed, listeners);
        assert_eq!(
            (unready.reason, unready.message.as_str()),
            ("NotListening", message)
        );
    };
    check(&[], "nothing listens on port 8081").await;
    check(
        &["0.0.0.0:9090", "[::]:8080", "0.0.0.0:8080"],
        "nothing listens on port 8081; the process listens on 8080, 9090",
    )
    .await;
    check(
        &["0.0.0.0:8081"],
        "the process listens on port 8081 of IPv4 only, at 0.0.0.0: it must listen on [::]",
    )
    .await;
    check(
        &["[::1]:8081"],
        "the process listens on port 8081 of ::1 only: it must listen on [::]",
    )
    .await;
    check(&["[::]:8081"], "port 8081 does not accept connections").await;
    let text = unready(Check::Connect(port), &["[::]:1"]).await.message;
    assert!(text.ends_with("the process listens on 1"), "{text}");
}
