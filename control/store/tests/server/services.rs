//! The `etcd-client` crate against the services beside keys, watches and leases: users, maintenance and membership.

use etcd_client::{
    AlarmAction, AlarmType, Client, ConnectOptions, Error, Permission, RoleRevokePermissionOptions,
    Txn, TxnOp,
};

use crate::harness::{Served, within};

/// The code and the message of a refused call.
pub(crate) fn refusal<T>(response: Result<T, Error>) -> (String, String) {
    match response {
        Err(Error::GRpcStatus(status)) => (format!("{:?}", status.code()), status.message().into()),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted"),
    }
}

async fn authenticated(served: &Served, name: &str, password: &str) -> Result<Client, Error> {
    let options = ConnectOptions::new().with_user(name, password);
    Client::connect([&served.endpoint], Some(options)).await
}

#[tokio::test]
async fn a_user_may_do_what_its_roles_permit() {
    let served = Served::start().await;
    let mut client = served.client().await;
    for (name, role) in [("root", "root"), ("alice", "app")] {
        client.user_add(name, "secret", None).await.unwrap();
        client.role_add(role).await.unwrap();
        client.user_grant_role(name, role).await.unwrap();
    }
    let permission = Permission::read_write("/app/").with_prefix();
    client
        .role_grant_permission("app", permission)
        .await
        .unwrap();
    client.auth_enable().await.unwrap();
    let anonymous = refusal(client.get("/app/x", None).await);
    assert_eq!(
        anonymous,
        (
            "InvalidArgument".into(),
            "etcdserver: user name is empty".into()
        )
    );
    assert!(authenticated(&served, "alice", "wrong").await.is_err());
    let mut alice = authenticated(&served, "alice", "secret").await.unwrap();
    alice.put("/app/x", "1", None).await.unwrap();
    let outside = refusal(alice.put("/other", "1", None).await);
    assert_eq!(
        outside,
        (
            "PermissionDenied".into(),
            "etcdserver: permission denied".into()
        )
    );
    let mut root = authenticated(&served, "root", "secret").await.unwrap();
    let options = Some(RoleRevokePermissionOptions::new().with_prefix());
    root.role_revoke_permission("app", "/app/", options)
        .await
        .unwrap();
    assert_eq!(
        refusal(alice.get("/app/x", None).await).0,
        "PermissionDenied"
    );
    assert_eq!(root.user_get("alice").await.unwrap().roles(), ["app"]);
    assert_eq!(root.role_list().await.unwrap().roles(), ["app", "root"]);
    root.auth_disable().await.unwrap();
    assert_eq!(client.get("/app/x", None).await.unwrap().count(), 1);
    served.stop().await;
}

#[tokio::test]
async fn a_space_alarm_refuses_puts_until_it_is_disarmed() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let raise = |action| (action, AlarmType::Nospace, None);
    let (action, kind, options) = raise(AlarmAction::Activate);
    client.alarm(action, kind, options).await.unwrap();
    assert_eq!(
        refusal(client.put("a", "1", None).await).0,
        "ResourceExhausted"
    );
    let alarms = client
        .alarm(AlarmAction::Get, AlarmType::None, None)
        .await
        .unwrap();
    assert_eq!(alarms.alarms().len(), 1);
    let (action, kind, options) = raise(AlarmAction::Deactivate);
    client.alarm(action, kind, options).await.unwrap();
    client.put("a", "1", None).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn the_snapshot_stream_ends_with_nothing_remaining() {
    let served = Served::start().await;
    let mut client = served.client().await;
    for number in 0..100 {
        client
            .put(format!("key/{number}"), vec![b'v'; 10_000], None)
            .await
            .unwrap();
    }
    let mut stream = client.snapshot().await.unwrap();
    let (mut bytes, mut remaining) = (0, u64::MAX);
    while let Some(part) = within(stream.message()).await.unwrap() {
        bytes += part.blob().len();
        assert!(part.remaining_bytes() <= remaining, "the rest grew");
        remaining = part.remaining_bytes();
    }
    assert_eq!(remaining, 0);
    assert!(bytes > 1_000_000, "{bytes} bytes");
    served.stop().await;
}

#[tokio::test]
async fn the_hash_of_a_revision_depends_on_its_content_only() {
    let (one, two) = (Served::start().await, Served::start().await);
    let mut hashes = Vec::new();
    for served in [&one, &two] {
        let mut client = served.client().await;
        client.put("a", "1", None).await.unwrap();
        hashes.push(client.hash_kv(0).await.unwrap().hash());
        client.put("a", "2", None).await.unwrap();
        hashes.push(client.hash_kv(0).await.unwrap().hash());
        assert_eq!(client.hash_kv(2).await.unwrap().hash(), hashes[0]);
        client.defragment().await.unwrap();
    }
    assert_eq!(hashes[..2], hashes[2..]);
    assert_ne!(hashes[0], hashes[1]);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn the_member_list_names_the_urls_of_the_single_member() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let list = client.member_list().await.unwrap();
    let [member] = list.members() else {
        panic!("{list:?}")
    };
    assert_eq!(member.client_urls(), [served.endpoint.as_str()]);
    assert!(!member.peer_urls().is_empty());
    assert_eq!(client.status().await.unwrap().leader(), member.id());
    let (code, message) = refusal(client.member_remove(member.id() ^ 1).await);
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("NotFound", "etcdserver: member not found")
    );
    served.stop().await;
}

#[tokio::test]
async fn a_defragmentation_returns_when_the_compacted_versions_are_freed() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let puts = |value: usize| {
        let put = |key| TxnOp::put(format!("{key}"), format!("{value}"), None);
        Txn::new().and_then((0..128).map(put).collect::<Vec<_>>())
    };
    for value in 0..300 {
        client.txn(puts(value)).await.unwrap();
    }
    let before = client.status().await.unwrap();
    let revision = before.header().unwrap().revision();
    client.compact(revision, None).await.unwrap();
    client.defragment().await.unwrap();
    let after = client.status().await.unwrap().raft_used_db_size();
    assert!(after < before.raft_used_db_size() / 2, "{after}");
    served.stop().await;
}
