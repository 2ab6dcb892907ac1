//! Services end to end: the real agent on two nodes follows a folder of manifests, and clients of every kind use what
//! it says, while it runs, changes, dies and comes again.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and ends"
)]

mod acts;
mod checks;
mod client;
mod forwarding;
mod load;
mod manifests;
mod node;
mod paths;
mod place;
mod restart;
mod server;
mod stage;
mod stale;
mod transfers;
mod wiring;

use acts::Acts;

#[test]
fn services_are_reached_on_every_path_and_refused_where_they_should_be() {
    let (paths, mut acts) = (paths::Paths::set(), Acts::default());
    paths.play(&mut acts);
    acts.end(&paths.stage);
}

#[test]
fn streams_and_datagrams_of_any_size_cross_a_service_whole() {
    let (transfers, mut acts) = (transfers::Transfers::set(), Acts::default());
    transfers.play(&mut acts);
    acts.end(&transfers.stage);
}

#[test]
fn packets_between_pods_are_forwarded_as_the_node_was_told() {
    let (mut forwarding, mut acts) = (forwarding::Forwarding::set(), Acts::default());
    forwarding.play(&mut acts);
    acts.end(&forwarding.stage);
}

#[test]
fn flows_do_not_outlive_their_backend() {
    let (mut stale, mut acts) = (stale::Stale::set(), Acts::default());
    stale.play(&mut acts);
    acts.end(&stale.stage);
}

#[test]
fn nothing_is_lost_while_the_agent_dies_and_other_services_change() {
    let (mut restart, mut acts) = (restart::Restart::set(), Acts::default());
    restart.play(&mut acts);
    acts.end(&restart.stage);
}

#[test]
#[ignore = "no test: the process that makes sockets in a node's cgroup"]
fn sockets_for_others() {
    place::make_sockets().unwrap();
}
