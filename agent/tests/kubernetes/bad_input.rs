//! Objects that make no sense: each has a message in the log, and the rest goes on.

use dormouse_rig::{Node, wait};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::server::{SERVICES, SLICES, Server};
use crate::{
    TCP, delete, programmed, put, service, slice, start, vip, wait_for, wait_for_absence,
    wait_for_log, with_server,
};

/// Ports of the largest Service.
const PORTS: u16 = 10_000;
/// Endpoints of a slice that all have one address.
const ENDPOINTS: usize = 1_000;

#[test]
fn what_cannot_be_parsed_keeps_its_last_state_and_the_rest_goes_on() {
    with_server(Server::streaming, |node, server| {
        put(server, 1, &[1]);
        put(server, 2, &[2]);
        let _agent = start(node, &server.url());
        wait_for(node, 2, &[2]);
        let mut wrong = slice(1, &[1]);
        wrong["endpoints"] = json!({"addresses": "2001:db8:77::3"});
        server.put(SLICES, wrong);
        let mut wrong = service(1);
        wrong["spec"]["ports"][0]["port"] = json!("eighty");
        server.put(SERVICES, wrong);
        for name in ["s1-a", "s1"] {
            wait_for_log(node, &format!("\"name\":\"{name}\""));
        }
        put(server, 2, &[3]);
        wait_for(node, 2, &[3]);
        wait_for(node, 1, &[1]);
        // One that is right again, and one that goes.
        put(server, 1, &[4]);
        wait_for(node, 1, &[4]);
    });
}

#[test]
fn a_service_with_ten_thousand_ports_is_served_beside_others_and_goes() {
    with_server(Server::streaming, |node, server| {
        let _agent = start(node, &server.url());
        let mut large = service(1);
        let port = |number: u16| json!({"name": format!("p{number}"), "protocol": "TCP", "port": number, "targetPort": 8080});
        large["spec"]["ports"] = (1..=PORTS).map(port).collect();
        let mut ends = slice(1, &[1]);
        let end =
            |number: u16| json!({"name": format!("p{number}"), "protocol": "TCP", "port": 8080});
        ends["ports"] = (1..=PORTS).map(end).collect();
        server.put(SERVICES, large);
        server.put(SLICES, ends);
        let count = |node: &Node| {
            let all = programmed(node).into_keys();
            all.filter(|(address, ..)| *address == vip(1)).count()
        };
        wait("all ports", || count(node) == usize::from(PORTS));
        put(server, 2, &[2]);
        wait_for(node, 2, &[2]);
        delete(server, 1);
        wait("no port", || count(node) == 0);
        wait_for(node, 2, &[2]);
    });
}

#[test]
fn an_address_that_a_slice_has_a_thousand_times_is_one_backend() {
    with_server(Server::streaming, |node, server| {
        let _agent = start(node, &server.url());
        put(server, 1, &[7; ENDPOINTS]);
        wait_for(node, 1, &[7]);
        put(server, 1, &[7, 8]);
        wait_for(node, 1, &[7, 8]);
    });
}

#[test]
fn of_two_services_with_one_address_the_older_is_served_until_it_goes() {
    with_server(Server::streaming, |node, server| {
        let mut first = service(1);
        first["metadata"]["creationTimestamp"] = json!("2021-01-01T00:00:00Z");
        server.put(SERVICES, first);
        server.put(SLICES, slice(1, &[1]));
        let _agent = start(node, &server.url());
        wait_for(node, 1, &[1]);
        let mut second = service(2);
        second["metadata"]["creationTimestamp"] = json!("2031-01-01T00:00:00Z");
        second["spec"]["clusterIP"] = json!(vip(1));
        second["spec"]["clusterIPs"] = json!([vip(1)]);
        server.put(SERVICES, second);
        server.put(SLICES, slice(2, &[2]));
        wait_for_log(
            node,
            "is claimed by shop/s1:p TCP IPv6 and by shop/s2:p TCP IPv6",
        );
        wait_for(node, 1, &[1]);
        delete(server, 1);
        let taken_over = [(crate::backend(2), 8_080)];
        wait("the second", || {
            programmed(node)
                .get(&(vip(1), 80, TCP))
                .is_some_and(|found| found[..] == taken_over)
        });
    });
}

/// For the process, a stop is a jump of all clocks.
#[test]
fn after_a_jump_of_the_clocks_the_agent_follows_on() {
    with_server(Server::streaming, |node, server| {
        put(server, 1, &[1]);
        put(server, 2, &[2]);
        let agent = start(node, &server.url());
        wait_for(node, 2, &[2]);
        agent.signal(Signal::SIGSTOP);
        put(server, 1, &[11]);
        delete(server, 2);
        // The connections that were open end meanwhile.
        server.go_away();
        server.come_back();
        agent.signal(Signal::SIGCONT);
        wait_for(node, 1, &[11]);
        wait_for_absence(node, 2);
    });
}
