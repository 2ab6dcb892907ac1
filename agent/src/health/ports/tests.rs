//! Health check node ports: open, answer, change and close with their Services.

use tokio::time::timeout;

use super::*;
use crate::health::server::tests::get;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn health() -> (Health, Arc<ProxyHealth>, CancellationToken) {
    let (proxy, shutdown) = (Arc::new(ProxyHealth::new()), CancellationToken::new());
    let listen = Listen::At(vec![V4, V6]);
    (
        Health::new(listen, Arc::clone(&proxy), shutdown.clone()),
        proxy,
        shutdown,
    )
}

/// A port that was free in both families when it was checked.
fn free_port() -> u16 {
    loop {
        let v4 = std::net::TcpListener::bind((V4, 0)).unwrap();
        let port = v4.local_addr().unwrap().port();
        if std::net::TcpListener::bind((V6, port)).is_ok() {
            return port;
        }
    }
}

fn web() -> ServiceKey {
    ServiceKey::new("shop", "web")
}

/// The answers of both families, each from a port and a number of local endpoints.
fn answers<const N: usize>(given: [Option<(u16, usize)>; N]) -> [Option<Answer>; N] {
    given.map(|given| {
        let (port, local_endpoints) = given?;
        Some(Answer {
            port,
            local_endpoints,
        })
    })
}

async fn status(ip: IpAddr, port: u16) -> Option<String> {
    let answer = get(SocketAddr::new(ip, port), "/any/path").await.ok()?;
    answer.get(9..12).map(str::to_owned)
}

#[tokio::test]
async fn the_response_equals_kube_proxys_byte_by_byte() {
    let (mut health, ..) = health();
    let port = free_port();
    assert!(
        health
            .set(&web(), answers([Some((port, 2)), None]))
            .await
            .is_empty()
    );
    let text = get(SocketAddr::new(V4, port), "/").await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let expected = "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}";
    assert_eq!(body, expected);
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    for line in [
        "content-type: application/json",
        "x-content-type-options: nosniff",
        "x-load-balancing-endpoint-weight: 2",
    ] {
        assert!(
            head.lines().any(|it| it.eq_ignore_ascii_case(line)),
            "{line}: {head}"
        );
    }
    assert_eq!(status(V6, port).await, None);
}

#[tokio::test]
async fn each_family_answers_for_itself_and_as_it_is_now() {
    let (mut health, proxy, _) = health();
    let port = free_port();
    assert!(
        health
            .set(&web(), answers([Some((port, 1)), Some((port, 0))]))
            .await
            .is_empty()
    );
    assert_eq!(status(V4, port).await.as_deref(), Some("200"));
    assert_eq!(status(V6, port).await.as_deref(), Some("503"));
    assert!(
        health
            .set(&web(), answers([Some((port, 0)), Some((port, 3))]))
            .await
            .is_empty()
    );
    assert_eq!(status(V4, port).await.as_deref(), Some("503"));
    assert_eq!(status(V6, port).await.as_deref(), Some("200"));
    let long_ago = Instant::now()
        .checked_sub(crate::health::PENDING_MAX)
        .unwrap();
    proxy.queued(long_ago);
    assert_eq!(status(V6, port).await.as_deref(), Some("503"));
}

#[tokio::test]
async fn a_port_given_up_is_free_at_once_even_for_another_service() {
    let (mut health, _, shutdown) = health();
    let (port, next, other) = (free_port(), free_port(), ServiceKey::new("shop", "other"));
    for _ in 0..20 {
        assert!(
            health
                .set(&web(), answers([Some((port, 1)), None]))
                .await
                .is_empty()
        );
        assert!(
            health
                .set(&web(), answers([Some((next, 1)), None]))
                .await
                .is_empty()
        );
        assert!(
            health
                .set(&other, answers([Some((port, 1)), None]))
                .await
                .is_empty()
        );
        assert!(health.set(&web(), [None, None]).await.is_empty());
        assert!(health.set(&other, [None, None]).await.is_empty());
    }
    assert_eq!(health.counts(), (0, 0));
    assert!(health.wanted.is_empty());
    assert!(
        health
            .set(&web(), answers([Some((port, 1)), None]))
            .await
            .is_empty()
    );
    shutdown.cancel();
    let closed = async { while status(V4, port).await.is_some() {} };
    timeout(Duration::from_secs(20), closed)
        .await
        .expect("it still listens");
}

#[tokio::test]
async fn a_port_of_another_service_is_reported_and_passed_on_when_released() {
    let (mut health, ..) = health();
    let (port, other) = (free_port(), ServiceKey::new("shop", "other"));
    assert!(
        health
            .set(&web(), answers([Some((port, 1)), None]))
            .await
            .is_empty()
    );
    let errors = health.set(&other, answers([Some((port, 0)), None])).await;
    assert!(
        matches!(&*errors, [HealthError::Taken { owner, .. }] if *owner == web()),
        "{errors:?}"
    );
    assert_eq!(health.counts(), (1, 1));
    assert!(health.set(&web(), [None, None]).await.is_empty());
    assert_eq!(health.counts(), (1, 0));
    assert_eq!(status(V4, port).await.as_deref(), Some("503"));
}

#[tokio::test]
async fn a_port_in_use_is_reported_and_tried_again_every_minute() {
    let (mut health, ..) = health();
    let taken = std::net::TcpListener::bind((V4, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let errors = health.set(&web(), answers([Some((port, 1)), None])).await;
    assert!(matches!(&*errors, [HealthError::Bind { .. }]), "{errors:?}");
    assert!(
        health
            .retry_at
            .is_some_and(|at| at > Instant::now() + RETRY / 2)
    );
    health.retry_at = Some(Instant::now());
    assert_eq!(health.retry().await.len(), 1);
    drop(taken);
    health.retry_at = Some(Instant::now());
    assert!(health.retry().await.is_empty());
    assert_eq!((health.counts(), health.retry_at), ((1, 0), None));
    assert_eq!(status(V4, port).await.as_deref(), Some("200"));
}

#[tokio::test]
async fn all_addresses_are_one_socket_per_family() {
    let (mut health, ..) = health();
    health.listen = Listen::Everywhere;
    let port = free_port();
    let errors = health
        .set(&web(), answers([Some((port, 1)), Some((port, 0))]))
        .await;
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(status(V4, port).await.as_deref(), Some("200"));
    assert_eq!(status(V6, port).await.as_deref(), Some("503"));
}
