//! The webhook over TLS: announced pods, dry runs, garbage, a flood, and a renewed certificate.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode};
use serde_json::json;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use crate::cluster::{PODS, World, fixture, pod};
use crate::reviews::{Client, review};

const DECISIONS: &str = "dormouse_decision_duration_seconds_count";

#[tokio::test(flavor = "multi_thread")]
async fn an_announced_pod_is_decided_on_before_it_is_stored_and_bound_once_afterwards() {
    let world = World::start().await;
    world.node("n1", 1);
    let mut client = Client::connect(&world).await;
    let announced = pod("a", &json!({}));
    for _ in 0..3 {
        client.allowed(&review(&announced, &json!({}))).await;
    }
    world.metric(&format!("{DECISIONS} 1")).await;
    assert!(world.api.writes("").is_empty(), "it is not stored");
    world.api.put(PODS, &announced);
    assert_eq!(world.bound("a").await, "n1");
    client.allowed(&review(&announced, &json!({}))).await;
    world.api.put(PODS, &pod("b", &json!({})));
    world
        .api
        .until("b is rejected", |api| {
            !api.writes("pods/b/status").is_empty()
        })
        .await;
    assert_eq!(world.api.writes("/binding").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_and_a_pod_of_another_scheduler_are_not_taken() {
    let world = World::start().await;
    world.node("n1", 9);
    let mut client = Client::connect(&world).await;
    let dry = review(&pod("a", &json!({})), &json!({"dryRun": true}));
    client.allowed(&dry).await;
    let other = pod("b", &json!({"schedulerName": "other"}));
    client.allowed(&review(&other, &json!({}))).await;
    // Decisions are made in the order of the announcements: those before this one are through.
    client
        .allowed(&review(&pod("c", &json!({})), &json!({})))
        .await;
    world.metric(&format!("{DECISIONS} 1")).await;
    world
        .metric(r#"dormouse_admission_reviews_total{outcome="ignored"} 1"#)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_no_review_has_a_clear_error_and_the_next_one_is_read() {
    let world = World::start().await;
    let large = Bytes::from(vec![b' '; (4 << 20) + 1]);
    let mut version = review(&pod("a", &json!({})), &json!({}));
    version["apiVersion"] = "admission.k8s.io/v1beta1".into();
    let mut kind = version.clone();
    kind["kind"] = "Pod".into();
    let cases = [
        (
            large,
            StatusCode::PAYLOAD_TOO_LARGE,
            "larger than 4194304 bytes",
        ),
        (
            "{\"kind\":".into(),
            StatusCode::BAD_REQUEST,
            "no review: EOF",
        ),
        (
            version.to_string().into(),
            StatusCode::BAD_REQUEST,
            "v1beta1",
        ),
        (kind.to_string().into(), StatusCode::BAD_REQUEST, "\"Pod\""),
    ];
    for (body, status, reason) in cases {
        let mut client = Client::connect(&world).await;
        let (answered, text) = client.send(body).await;
        assert_eq!(answered, status, "{text}");
        assert!(text.contains(reason), "{text}");
    }
    let mut client = Client::connect(&world).await;
    let head = |method, path, media_type| {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", media_type);
        request.body(Full::new(Bytes::new())).unwrap()
    };
    for (method, path, media_type, status) in [
        (
            "GET",
            "/admit",
            "application/json",
            StatusCode::METHOD_NOT_ALLOWED,
        ),
        ("POST", "/", "application/json", StatusCode::NOT_FOUND),
        (
            "POST",
            "/admit",
            "text/plain",
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
    ] {
        let (answered, text) = client.request(head(method, path, media_type)).await;
        assert_eq!(answered, status, "{text}");
    }
    client
        .allowed(&review(&pod("a", &json!({})), &json!({})))
        .await;
    world
        .metric(r#"dormouse_admission_reviews_total{outcome="refused"} 7"#)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_announcements_does_not_stop_pods_that_are_stored() {
    let world = World::start().await;
    world.node("n1", 20_000);
    let flood = (0..4).map(|client| {
        let world = &world;
        async move {
            let mut connection = Client::connect(world).await;
            for number in 0..500 {
                let name = format!("flood-{client}-{number}");
                let announced = pod(&name, &json!({}));
                connection.allowed(&review(&announced, &json!({}))).await;
            }
        }
    });
    futures::future::join_all(flood).await;
    world.api.put(PODS, &pod("stored", &json!({})));
    assert_eq!(world.bound("stored").await, "n1");
    assert_eq!(
        world.api.writes("/binding").len(),
        1,
        "no pod of the flood is stored"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_shown_without_a_restart() {
    let world = World::start().await;
    let shown = |client: &Client| client.certificate.clone();
    let certificate = |name| CertificateDer::from_pem_file(fixture(name)).unwrap();
    let mut before = Client::connect(&world).await;
    assert_eq!(shown(&before), certificate("server.pem"));
    let file = |name| world.folder.path().join(name);
    std::fs::write(file("cert.pem"), "half").unwrap();
    let meanwhile = Client::connect(&world).await;
    assert_eq!(
        shown(&meanwhile),
        certificate("server.pem"),
        "the files do not fit together"
    );
    std::fs::copy(fixture("renewed.pem"), file("cert.pem")).unwrap();
    std::fs::copy(fixture("renewed.key"), file("cert.key")).unwrap();
    let mut after = Client::connect(&world).await;
    assert_eq!(shown(&after), certificate("renewed.pem"));
    for client in [&mut before, &mut after] {
        client
            .allowed(&review(&pod("a", &json!({})), &json!({})))
            .await;
    }
}
