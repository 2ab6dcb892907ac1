//! Services from a Kubernetes API server, with the real agent: the server changes objects, forgets events, breaks off in the
//! middle of a line, goes away, and comes back from a backup.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking; what is skipped is printed"
)]

mod agent;
mod control;
mod maps;
mod objects;
mod proxy;
mod server;

mod admission;
mod bad_input;
mod chaos;
mod credentials;
mod kills;
mod kube_apiserver;
mod metadata;
mod own_node;
mod rights;

use agent::{get, log, metric, start, start_command, start_with, wait_for_log, with_server};
use maps::{Programmed, TCP, programmed, wait_for, wait_for_absence, wait_for_any};
use objects::{backend, service, slice, vip};
use server::{SERVICES, SLICES, Server, delete, put};

/// The agent follows the server through everything that it does; its maps are then those of an agent that starts afresh.
fn follows(server: fn() -> Server) {
    with_server(server, |node, server| {
        for number in 1..=7 {
            put(server, number, &[number, 100 + number]);
        }
        // The first server of the two is not there.
        let agent = start(node, &format!("http://[::1]:1,{}", server.url()));
        wait_for(node, 7, &[7, 107]);

        put(server, 1, &[1, 101, 201]);
        wait_for(node, 1, &[1, 101, 201]);
        put(server, 8, &[8]);
        delete(server, 2);
        wait_for(node, 8, &[8]);
        wait_for_absence(node, 2);

        // The server breaks off in the middle of a line; what it did not send whole comes with the next watch.
        server.break_off(SLICES, slice(3, &[33]));
        wait_for(node, 3, &[33]);

        // Away: nothing changes.
        server.go_away();
        put(server, 4, &[44]);
        delete(server, 5);
        wait_for_log(node, "cannot be followed");
        wait_for(node, 4, &[4, 104]);
        wait_for(node, 5, &[5, 105]);
        // Back, without a memory: each watch gets 410.
        server.come_back();
        wait_for(node, 4, &[44]);
        wait_for_absence(node, 5);

        // Restored from a backup: its versions are lower, and it has other objects. A watch that is requested between the two
        // states would stay silent until its time is over.
        server.wait_for_watches(&[SERVICES, SLICES]);
        server.restore(|server| {
            put(server, 6, &[66]);
            delete(server, 7);
        });
        wait_for(node, 6, &[66]);
        wait_for_absence(node, 7);

        for reason in ["start", "expired", "reset"] {
            let name =
                format!("dormouse_kubernetes_lists_total{{kind=\"Service\",reason=\"{reason}\"}}");
            assert!(metric(&name) >= 1, "{reason}");
        }
        server.wait_for_watches(&[SERVICES, SLICES]);
        for kind in ["Service", "EndpointSlice"] {
            let name = format!("dormouse_kubernetes_connected{{kind=\"{kind}\"}}");
            assert_eq!(metric(&name), 1, "{kind}");
        }

        let followed = programmed(node);
        agent.kill();
        node.home().detach();
        let _agent = start(node, &server.url());
        wait_for(node, 6, &[66]);
        assert_eq!(followed, programmed(node));
        assert_eq!(followed.len(), 5, "{followed:?}");
    });
}

#[test]
fn an_agent_that_followed_has_the_maps_of_one_that_starts_afresh_with_streaming_lists() {
    follows(Server::streaming);
}

#[test]
fn an_agent_that_followed_has_the_maps_of_one_that_starts_afresh_with_paged_lists() {
    follows(Server::paged);
}

#[test]
fn a_new_agent_removes_nothing_before_all_lists_are_complete() {
    with_server(Server::streaming, |node, server| {
        put(server, 1, &[1]);
        put(server, 2, &[2]);
        let agent = start(node, &server.url());
        wait_for(node, 2, &[2]);
        let before = programmed(node);
        agent.kill();
        server.go_away();
        delete(server, 2);
        let _agent = start(node, &server.url());
        wait_for_log(node, "cannot be followed");
        assert_eq!(programmed(node), before);
        server.come_back();
        wait_for_absence(node, 2);
        wait_for(node, 1, &[1]);
    });
}
