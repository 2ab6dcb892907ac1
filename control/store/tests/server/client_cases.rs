//! The calls of the `etcd-client` crate, one by one: each option that a client of etcd can set, and what it answers.

mod endpoints;
mod keys;
mod leases;
mod maintenance;
mod ranges;
mod transactions;
mod users;
mod watches;

use etcd_client::{Client, KeyValue};

/// Puts keys with values.
async fn put_all(client: &mut Client, pairs: &[(&str, &str)]) {
    for (key, value) in pairs {
        client.put(*key, *value, None).await.unwrap();
    }
}

/// Keys with their values.
fn texts(kvs: &[KeyValue]) -> Vec<(&str, &str)> {
    let text = |kv| {
        (
            KeyValue::key_str(kv).unwrap(),
            KeyValue::value_str(kv).unwrap(),
        )
    };
    kvs.iter().map(text).collect()
}
