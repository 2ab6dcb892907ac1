//! Tokens in a store: used once, listed, withdrawn, expired.

use std::time::UNIX_EPOCH;

use dormouse_store::{Store, server};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::records::SECONDS_MAX;
use super::*;
use crate::trust::TokenUser;

const HOUR: Duration = Duration::from_hours(1);

/// The tokens of an empty store, which ends with the guard.
async fn tokens() -> (Tokens, DropGuard) {
    let shutdown = CancellationToken::new();
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(server::serve(listener, Store::default(), shutdown.clone()));
    let client = Client::connect(&format!("http://{address}")).await;
    (Tokens::new(client.unwrap()), shutdown.drop_guard())
}

fn node(name: &str) -> Subject {
    Subject::Node(name.to_owned())
}

#[tokio::test]
async fn a_token_of_one_process_is_used_up_by_the_first_that_gets_a_certificate() {
    let (tokens, _end) = tokens().await;
    for (subject, name) in [(node("a"), "a"), (Subject::Role("store".to_owned()), "")] {
        let token = tokens.create(subject, HOUR).await.unwrap();
        // A join that failed afterwards.
        tokens.admit(&token, name).await.unwrap();
        let [first, second] = [
            tokens.admit(&token, name).await.unwrap(),
            tokens.admit(&token, name).await.unwrap(),
        ];
        tokens.use_up(&first).await.unwrap();
        let late = tokens.use_up(&second).await;
        assert!(matches!(late, Err(Refused::Used)), "{late:?}");
        let again = tokens.admit(&token, name).await;
        assert!(matches!(again, Err(Refused::Unknown)), "{again:?}");
    }
    let token = tokens.create(Subject::Nodes, HOUR).await.unwrap();
    for name in ["a", "b"] {
        let admission = tokens.admit(&token, name).await.unwrap();
        assert_eq!(admission.identity, Identity::node(name).unwrap());
        tokens.use_up(&admission).await.unwrap();
    }
}

#[tokio::test]
async fn tokens_are_listed_without_their_secrets_and_withdrawn_by_their_ids() {
    let (tokens, _end) = tokens().await;
    let join = tokens.create(node("a"), HOUR).await.unwrap();
    let user = TokenUser {
        name: "ann".to_owned(),
        groups: Vec::new(),
    };
    let of_user = tokens.create_for_user(user.clone(), HOUR).await.unwrap();
    let of_joins = tokens.of_joins().await.unwrap();
    let [of_joins] = &of_joins[..] else {
        panic!("{of_joins:?}");
    };
    assert_eq!(of_joins.id, join.id());
    assert_eq!(of_joins.subject, node("a"));
    let of_users = tokens.of_users().await.unwrap();
    assert_eq!(of_users[0].id, of_user.id());
    assert_eq!(of_users[0].subject, user);
    // The id of a token of the other kind, and a part of an id.
    assert!(!tokens.withdraw(of_user.id()).await.unwrap());
    assert!(!tokens.withdraw(&join.id()[1..]).await.unwrap());
    assert!(!tokens.withdraw("").await.unwrap());
    let admission = tokens.admit(&join, "a").await.unwrap();
    assert!(tokens.withdraw(join.id()).await.unwrap());
    assert!(!tokens.withdraw(join.id()).await.unwrap());
    assert!(tokens.use_up(&admission).await.is_err());
    assert!(tokens.delete_of_user(of_user.id()).await.unwrap());
    let revealed = of_user.reveal();
    assert!(tokens.user_of(&revealed).await.unwrap().is_none());
}

#[tokio::test]
async fn expired_tokens_are_removed_and_no_others() {
    let (tokens, _end) = tokens().await;
    let user = |name: &str| TokenUser {
        name: name.to_owned(),
        groups: Vec::new(),
    };
    for ttl in [Duration::from_secs(10), 2 * HOUR] {
        tokens.create(node("a"), ttl).await.unwrap();
        tokens.create_for_user(user("ann"), ttl).await.unwrap();
    }
    // Of a later release.
    let unknown = format!("{PREFIX}unknown");
    tokens.put(&unknown, &"unknown", Vec::new()).await.unwrap();
    let now = SystemTime::now();
    assert_eq!(tokens.sweep(now).await.unwrap(), 0);
    assert_eq!(tokens.sweep(now + HOUR).await.unwrap(), 2);
    assert_eq!(tokens.of_joins().await.unwrap().len(), 1);
    assert_eq!(tokens.of_users().await.unwrap().len(), 1);
    assert!(tokens.read(&unknown).await.unwrap().is_some());
}

#[tokio::test]
async fn an_expired_token_admits_nothing_and_is_told_from_a_wrong_one() {
    let (tokens, _end) = tokens().await;
    let join = tokens.create(node("a"), HOUR).await.unwrap();
    let user = TokenUser {
        name: "ann".to_owned(),
        groups: Vec::new(),
    };
    let of_user = tokens.create_for_user(user, HOUR).await.unwrap();
    let revealed = of_user.reveal();
    assert!(tokens.user_of(&revealed).await.unwrap().is_some());
    for key in [
        key(PREFIX, &join),
        format!("/registry/dormouse.dev/usertokens/{}", of_user.id()),
    ] {
        let found = tokens.read(&key).await.unwrap().unwrap();
        let mut record: serde_json::Value = serde_json::from_slice(found.value()).unwrap();
        record["expires"] = seconds(SystemTime::now()).into();
        tokens.put(&key, &record, Vec::new()).await.unwrap();
    }
    let expired = tokens.admit(&join, "a").await.unwrap_err();
    assert!(matches!(expired, Refused::Expired(_)), "{expired:?}");
    // With a wrong secret, the error does not say that the id exists.
    let guess = format!("{}.{}", join.id(), "0".repeat(32));
    let wrong = tokens.admit(&guess.parse().unwrap(), "a").await;
    assert!(matches!(wrong, Err(Refused::Unknown)), "{wrong:?}");
    assert!(tokens.user_of(&revealed).await.unwrap().is_none());
}

#[tokio::test]
async fn a_revocation_at_an_impossible_time_is_read() {
    let (tokens, _end) = tokens().await;
    let now = SystemTime::now();
    tokens.revoke("a", now).await.unwrap();
    let key = format!("{REVOKED}b");
    tokens.put(&key, &u64::MAX, Vec::new()).await.unwrap();
    let revoked = tokens.revoked().await.unwrap();
    let latest = UNIX_EPOCH + Duration::from_secs(SECONDS_MAX);
    let a = UNIX_EPOCH + Duration::from_secs(seconds(now));
    assert_eq!(revoked, [("a".to_owned(), a), ("b".to_owned(), latest)]);
}
