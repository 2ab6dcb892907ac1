//! When a node takes pods: container runtimes find the plugin, STATUS succeeds and `/readyz` is 200 once Services are in force, and from
//! then on, also while the server is away.

use std::fs;
use std::path::PathBuf;

use dormouse_rig::{Agent, Call, Node, wait};

use crate::server::Server;
use crate::{get, put, start_with, wait_for, wait_for_log, with_server};

/// The folder of network configurations.
fn networks(node: &Node) -> PathBuf {
    node.dir().join("net.d")
}

fn start(node: &Node, server: &Server) -> Agent {
    let networks = networks(node);
    let folder = networks.to_str().unwrap();
    start_with(node, &server.url(), &["--cni-conf-dir", folder])
}

fn status(node: &Node) -> Call {
    let home = node.home();
    Call::new("STATUS", Call::network(&home.socket(), &home.state_dir()))
}

fn is_ready() -> bool {
    get("/readyz").starts_with("HTTP/1.1 200 ")
}

#[test]
fn a_node_takes_pods_once_services_are_in_force_and_while_the_server_is_away_later() {
    with_server(Server::streaming, |node, server| {
        put(server, 1, &[1]);
        server.go_away();
        let agent = start(node, server);
        wait_for_log(node, "cannot be followed");
        assert!(get("/readyz").contains("Services are not in force yet"));
        let refused = status(node).run();
        let error: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
        assert_eq!(error["code"], 50, "{error}");
        let pod = node.pod("early");
        let home = node.home();
        let add = Call::new("ADD", Call::network(&home.socket(), &home.state_dir()));
        let add = add.attachment("early", pod.path());
        let refused = add.run();
        let error: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
        assert_eq!(error["code"], 11, "{error}");
        assert!(!networks(node).exists());

        // The folder cannot be used at first: pods are served all the same, and the attempt is repeated.
        fs::write(networks(node), "").unwrap();
        server.come_back();
        wait_for(node, 1, &[1]);
        wait_for_log(node, "is not installed");
        status(node).succeeds();
        fs::remove_file(networks(node)).unwrap();
        fs::create_dir(networks(node)).unwrap();
        fs::write(networks(node).join("05-other.conflist"), "{}").unwrap();
        let conflist = networks(node).join("10-dormouse.conflist");
        wait("the network configuration", || conflist.exists());
        assert!(is_ready());
        status(node).succeeds();
        add.succeeds();
        wait_for_log(node, "05-other.conflist");

        agent.kill();
        server.go_away();
        let agent = start(node, server);
        wait_for_log(node, "cannot be followed");
        assert!(is_ready() && conflist.exists());
        status(node).succeeds();

        // Without maps, as after a reboot, nothing is in force.
        agent.kill();
        node.home().detach();
        let _agent = start(node, server);
        wait_for_log(node, "cannot be followed");
        assert!(!is_ready() && conflist.exists());
    });
}
