//! The credentials for the API server: a pod's service account whose token is replaced, and the authority of another cluster.

use std::fs;
use std::path::Path;

use dormouse_rig::{Agent, Node};

use crate::server::{Server, TLS};
use crate::{Programmed, programmed, put, start_with, wait_for, wait_for_log, with_server};

/// Writes a pod's service account, as kubelet does: each file is replaced at once. Returns its folder.
pub(crate) fn write_account(node: &Node, token: &str, authority: &str) -> String {
    let folder = node.dir().join("account");
    fs::create_dir_all(&folder).unwrap();
    let authority = fs::read_to_string(Path::new(TLS).join(authority)).unwrap();
    for (name, text) in [("token", token), ("ca.crt", &authority)] {
        fs::write(folder.join("new"), text).unwrap();
        fs::rename(folder.join("new"), folder.join(name)).unwrap();
    }
    folder.to_str().unwrap().to_owned()
}

fn start(node: &Node, server: &Server, flags: &[&str]) -> Agent {
    start_with(node, &server.url(), flags)
}

#[test]
fn in_a_pod_the_token_is_read_again_when_it_was_replaced() {
    with_server(Server::with_tls, |node, server| {
        server.accept_only("first");
        put(server, 1, &[1]);
        let folder = write_account(node, "first", "ca.pem");
        let flags = ["--in-cluster", "--service-account", &folder];
        let _agent = start(node, server, &flags);
        wait_for(node, 1, &[1]);

        server.accept_only("second");
        put(server, 1, &[2]);
        wait_for_log(node, "401");
        wait_for(node, 1, &[1]);
        write_account(node, "second", "ca.pem");
        wait_for(node, 1, &[2]);
    });
}

#[test]
fn the_server_of_another_cluster_is_recognized_and_the_right_authority_is_read_when_it_comes() {
    with_server(Server::with_tls, |node, server| {
        put(server, 1, &[1]);
        let folder = write_account(node, "token", "other_ca.pem");
        let _agent = start(node, server, &["--service-account", &folder]);
        wait_for_log(node, "is it another cluster's server?");
        assert_eq!(programmed(node), Programmed::new());
        write_account(node, "token", "ca.pem");
        wait_for(node, 1, &[1]);
    });
}
