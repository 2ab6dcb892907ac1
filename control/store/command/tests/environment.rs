//! Variables of etcd as flags. A test cannot set variables of its own process, in which other tests run:
//! it starts itself again with them.

use std::{env, process};

use clap::Parser;
use dormouse_store_command::Flags;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    flags: Flags,
}

#[test]
fn variables_are_flags_unless_they_are_on_the_command_line() {
    let child = process::Command::new(env::current_exe().unwrap())
        .args(["--exact", "in_a_process_with_variables", "--ignored"])
        .env("ETCD_NAME", "cp")
        .env("ETCD_MAX_TXN_OPS", "7")
        .env("ETCD_CLIENT_CERT_AUTH", "true")
        .env("ETCD_LISTEN_CLIENT_URLS", "http://[::1]:1,http://[::1]:2")
        .env("ETCD_CERT_FILE", "")
        .env("ETCD_INITIAL_CLUSTER", "a=http://a:2380,b=http://b:2380")
        .env("ETCD_SNAPSHOT_COUNT", "10000")
        .env("ETCD_NO_SUCH_FLAG", "x")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[ignore = "another test starts it with variables"]
fn in_a_process_with_variables() {
    let flags = Command::parse_from(["store", "--max-txn-ops=8"]).flags;
    assert_eq!(flags.name, "cp");
    assert_eq!(flags.max_txn_ops, 8);
    assert!(flags.client_cert_auth);
    assert_eq!(flags.listen_client_urls.len(), 2);
    assert_eq!(flags.cert_file, None);
    assert_eq!(flags.foreign.refused().unwrap().0, "initial-cluster");
    let mut foreign = flags.foreign.ignored().map(|(flag, _)| flag);
    assert!(foreign.any(|flag| flag == "snapshot-count"));
    let mut ignored = flags.environment.ignored();
    ignored.sort_unstable();
    let names: Vec<_> = ignored.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ETCD_MAX_TXN_OPS", "ETCD_NO_SUCH_FLAG"]);
}
