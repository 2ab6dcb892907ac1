//! Roles, users and tokens.

use std::time::Duration;

use dormouse_store::{Limits, auth};
use etcd_client::{
    Client, ConnectOptions, Permission, PermissionType, RoleRevokePermissionOptions, UserAddOptions,
};

use crate::{
    harness::{Served, until},
    services::refusal,
};

/// The cheapest hash: these tests are not about passwords.
const BCRYPT_COST: u32 = 4;

#[tokio::test]
async fn a_role_lists_the_ranges_that_were_granted_and_not_revoked() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.role_add("app").await.unwrap();
    let permissions = [
        Permission::read("123"),
        Permission::write("abc").with_from_key(),
        Permission::read_write("hi").with_range_end("hjj"),
        Permission::new(PermissionType::Write, "pp").with_prefix(),
        Permission::new(PermissionType::Read, "xyz").with_all_keys(),
    ];
    for permission in &permissions {
        client
            .role_grant_permission("app", permission.clone())
            .await
            .unwrap();
    }
    let listed = client.role_get("app").await.unwrap().permissions();
    assert_eq!(listed.len(), permissions.len());
    for permission in &permissions {
        assert!(listed.contains(permission), "{permission:?}");
    }
    let options = RoleRevokePermissionOptions::new;
    for (key, options) in [
        ("123", None),
        ("abc", Some(options().with_from_key())),
        ("hi", Some(options().with_range_end("hjj"))),
        ("pp", Some(options().with_prefix())),
        ("xyz", Some(options().with_all_keys())),
    ] {
        client
            .role_revoke_permission("app", key, options)
            .await
            .unwrap();
    }
    assert!(
        client
            .role_get("app")
            .await
            .unwrap()
            .permissions()
            .is_empty()
    );
    client.role_delete("app").await.unwrap();
    let gone = refusal(client.role_get("app").await);
    let message = "etcdserver: role name not found".to_owned();
    assert_eq!(gone, ("FailedPrecondition".into(), message));
    served.stop().await;
}

#[tokio::test]
async fn users_are_added_changed_and_deleted() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let without_password = UserAddOptions::new().with_no_pwd();
    client.user_add("alice", "first", None).await.unwrap();
    client
        .user_add("robot", "", Some(without_password))
        .await
        .unwrap();
    assert_eq!(
        client.user_list().await.unwrap().users(),
        ["alice", "robot"]
    );
    assert_eq!(
        refusal(client.user_add("alice", "x", None).await).0,
        "FailedPrecondition"
    );
    client
        .user_change_password("alice", "second")
        .await
        .unwrap();
    client.role_add("app").await.unwrap();
    client.user_grant_role("alice", "app").await.unwrap();
    assert_eq!(client.user_get("alice").await.unwrap().roles(), ["app"]);
    client.user_revoke_role("alice", "app").await.unwrap();
    assert!(client.user_get("alice").await.unwrap().roles().is_empty());
    client.user_delete("robot").await.unwrap();
    let gone = refusal(client.user_get("robot").await);
    let message = "etcdserver: user name not found".to_owned();
    assert_eq!(gone, ("FailedPrecondition".into(), message));
    served.stop().await;
}

/// A server with authentication, whose unused tokens live for a second.
async fn guarded() -> Served {
    let auth = auth::Options {
        token_ttl: Duration::from_secs(1),
        bcrypt_cost: BCRYPT_COST,
    };
    let served = Served::with_limits(Limits {
        auth,
        ..Limits::default()
    })
    .await;
    let mut client = served.client().await;
    client.user_add("root", "secret", None).await.unwrap();
    client.role_add("root").await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.auth_enable().await.unwrap();
    served
}

async fn login(served: &Served, refreshing: bool) -> Client {
    let options = ConnectOptions::new()
        .with_user("root", "secret")
        .with_auto_token_refresh(refreshing);
    Client::connect([&served.endpoint], Some(options))
        .await
        .unwrap()
}

#[tokio::test]
async fn an_unused_token_expires_and_a_client_that_refreshes_it_goes_on() {
    let served = guarded().await;
    let mut refreshing = login(&served, true).await;
    for round in 0..4 {
        // When this token has expired, so has the one that was used last before it was given.
        let plain = login(&served, false).await;
        until("the token expires", async || {
            // A call renews the token, so each look waits longer than its time to live.
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            plain.clone().get("key", None).await.is_err()
        })
        .await;
        let refused = refusal(plain.clone().get("key", None).await);
        assert_eq!(
            refused,
            (
                "Unauthenticated".into(),
                "etcdserver: invalid auth token".into()
            )
        );
        match round {
            0 => drop(refreshing.get("key", None).await.unwrap()),
            1 => drop(refreshing.member_list().await.unwrap()),
            2 => drop(refreshing.user_list().await.unwrap()),
            // The lock service answers an expired token with a code of its own.
            _ => drop(refreshing.lock("m", None).await.unwrap()),
        }
    }
    refreshing.auth_disable().await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn many_calls_with_an_expired_token_all_succeed_after_a_refresh() {
    let served = guarded().await;
    let client = login(&served, true).await;
    let plain = login(&served, false).await;
    until("the token expires", async || {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        plain.clone().get("key", None).await.is_err()
    })
    .await;
    let calls = (0..16).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move { client.get("key", None).await })
    });
    let calls: Vec<_> = calls.collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    served.stop().await;
}
