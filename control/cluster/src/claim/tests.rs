//! Claims in a store: no VIP is given twice, and a freed one late.

use dormouse_store::Store;
use dormouse_store::server::{Options, Server};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{AppSpec, channel};

/// A client of an empty store in this process.
async fn store() -> Client {
    let none = Vec::<TcpListener>::new();
    let shutdown = CancellationToken::new();
    let server = Server::new(none, Store::new(), Options::default(), shutdown).unwrap();
    let services = channel::in_process(server.in_process());
    Client::over(services).await.unwrap()
}

/// The claims of a control that has just started; 16 VIPs are given.
fn control(store: &Client) -> Claims {
    Claims::new(store.clone(), vec!["fd00:10::/123".parse().unwrap()])
}

fn app(name: &str) -> App {
    let spec: AppSpec = serde_json::from_value(json!({"container": {"name": "app"}})).unwrap();
    let mut app = App::new(name, spec);
    app.metadata.namespace = Some("shop".to_owned());
    app
}

#[test]
fn the_key_of_a_claim_is_parsed_back_to_its_index() {
    assert_eq!(
        path_of(VipIndex(0x1f3a)),
        "/registry/dormouse.dev/vips/00001f3a"
    );
    assert_eq!(
        parse_path(path_of(VipIndex(0x1f3a)).as_bytes()),
        Some(VipIndex(0x1f3a))
    );
    assert_eq!(parse_path(b"/registry/dormouse.dev/vips/zz"), None);
}

#[tokio::test]
async fn a_vip_is_claimed_and_freed_with_its_app() {
    let store = store().await;
    let (here, there) = (control(&store), control(&store));
    let mut made = Vec::new();
    for number in 0..16 {
        // Two allocators, each with its own cache of claims, as two processes have.
        let claims = if number % 2 == 0 { &here } else { &there };
        made.push(claims.create(app(&format!("a{number}"))).await.unwrap());
    }
    let mut vips: Vec<_> = made.iter().filter_map(App::vip).collect();
    vips.sort();
    vips.dedup();
    assert_eq!(vips.len(), 16);
    assert!(here.create(app("late")).await.is_err());
    there
        .delete(&made[3], &Guard::default(), None)
        .await
        .unwrap();
    assert_eq!(here.create(app("late")).await.unwrap().vip(), made[3].vip());
}

#[tokio::test]
async fn the_vip_of_a_deleted_app_is_given_after_all_others_also_by_a_restarted_control() {
    let store = store().await;
    let claims = control(&store);
    let another = claims.clone().written_by(store.clone());
    let create = async |claims: &Claims, name: &str| claims.create(app(name)).await.unwrap();
    let first = create(&claims, "a").await;
    claims
        .delete(&first, &Guard::default(), None)
        .await
        .unwrap();
    let (second, third) = (create(&another, "b").await, create(&claims, "c").await);
    another
        .delete(&third, &Guard::default(), None)
        .await
        .unwrap();
    let vip = |app: &App, number: u32| {
        let index = claims.ranges()[0].index_of(app.vip().unwrap());
        assert_eq!(index, Some(VipIndex(16 + number)));
    };
    vip(&first, 0);
    vip(&second, 1);
    vip(&third, 2);
    let restarted = control(&store);
    vip(&create(&restarted, "d").await, 3);
    restarted
        .delete(&second, &Guard::default(), None)
        .await
        .unwrap();
    for number in 4..16 {
        vip(&create(&restarted, &format!("e{number}")).await, number);
    }
    // The restarted one knows only what it has freed itself.
    for (name, number) in [("x", 0), ("y", 2), ("z", 1)] {
        vip(&create(&restarted, name).await, number);
    }
}

#[tokio::test]
async fn creates_at_the_same_time_and_in_vain_use_no_vip_twice_and_lose_none() {
    let store = store().await;
    let claims = control(&store);
    let names = (0..16).map(|number| format!("a{}", number % 15));
    let created: Vec<_> = names
        .map(|name| {
            let claims = claims.clone();
            tokio::spawn(async move { claims.create(app(&name)).await })
        })
        .collect();
    let mut refused = 0;
    for create in created {
        match create.await.unwrap() {
            Ok(_) => {}
            Err(ClaimError::Client(ClientError::AlreadyExists { .. })) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, 1);
    claims.create(app("last")).await.unwrap();
    assert!(claims.create(app("late")).await.is_err());
}

#[tokio::test]
async fn a_child_is_not_deleted_if_its_parent_has_changed_since_it_was_read() {
    let store = store().await;
    let claims = control(&store);
    let mut parent = claims.create(app("web")).await.unwrap();
    let child = claims.create(app("web-1")).await.unwrap();
    let read = parent.clone();
    parent.spec.paused = true;
    let now = store.update(parent, &Guard::default()).await.unwrap();
    let guard = Guard::at(child.revision());
    let raced = claims.delete(&child, &guard, Some(&read)).await;
    let conflict = matches!(raced, Err(ClaimError::Client(ClientError::Conflict { .. })));
    assert!(conflict, "{raced:?}");
    claims.delete(&child, &guard, Some(&now)).await.unwrap();
}
