//! The sharded scheduler as processes on loopback: a store, a leader, three shards and a relay, which are killed and started
//! again. A watch of the store has every binding: no pod is lost, none is bound twice, no node has more than fits.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed start or call fails the test"
)]

mod ledger;
mod world;

use dormouse_store_checker::wait::until;

use ledger::Ledger;
use world::World;

const SHARDS: [&str; 3] = ["shard-a", "shard-b", "shard-c"];

async fn started(extra: &'static [&'static str]) -> World {
    let mut world = World::new(extra).await;
    world.start("leader").await;
    for name in SHARDS.into_iter().chain(["relay-a"]) {
        world.start(name).await;
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_and_a_relay_bind_each_pod_to_a_feasible_node() {
    let world = started(&[]).await;
    let ledger = Ledger::open(&world.client).await;
    world.add_nodes(0..120).await;
    world.add_pods(0..240).await;
    ledger.bound(240).await;
    world.check(&ledger).await;
    let metrics = world.metrics("leader").await;
    let is_exact = metrics.contains("dormouse_scheduler_shards_inexact_decisions_total 0");
    assert!(is_exact, "{metrics}");
    for name in SHARDS {
        let nodes = world.nodes_of(name).await.unwrap();
        assert!((15..80).contains(&nodes), "{nodes} of 120 nodes at {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_shards_the_relay_and_the_leader_lose_no_pod_and_bind_none_twice() {
    for attempts in ["--attempts=1", "--attempts=8"] {
        let mut world = started(match attempts {
            "--attempts=1" => &["--attempts=1"],
            _ => &["--attempts=8"],
        })
        .await;
        let ledger = Ledger::open(&world.client).await;
        world.add_nodes(0..60).await;
        for (round, victim) in ["shard-b", "relay-a", "leader", "shard-a", "leader"]
            .into_iter()
            .enumerate()
        {
            world.add_pods(40 * round..40 * (round + 1)).await;
            // Some of the round are bound, others are not.
            ledger.bound(40 * round + 10).await;
            world.kill(victim).await;
            world.start(victim).await;
        }
        ledger.bound(200).await;
        world.check(&ledger).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_does_not_come_back_leaves_its_nodes_to_the_others() {
    let mut world = started(&[]).await;
    let ledger = Ledger::open(&world.client).await;
    world.add_nodes(0..30).await;
    world.add_pods(0..30).await;
    ledger.bound(30).await;
    world.kill("shard-c").await;
    world.add_pods(30..60).await;
    ledger.bound(60).await;
    world.check(&ledger).await;
    until("the nodes are those of two shards", async || {
        let mut nodes = 0;
        for name in ["shard-a", "shard-b"] {
            nodes += world.nodes_of(name).await.unwrap_or(0);
        }
        nodes == 30
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_shard_of_a_name_ends_with_an_error_that_names_the_first() {
    let mut world = World::new(&[]).await;
    world.start("shard-a").await;
    let refused = world.run_to_end("shard-a").await;
    assert!(
        refused.contains(
            "another shard is registered as dormouse-scheduler-shard-a and responds at http://"
        ) && refused.contains("give each its own --name"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_another_profile_is_refused() {
    let mut world = World::new(&[]).await;
    world.start("leader").await;
    world.start_with_other_profile("shard-a").await;
    world
        .logged(
            "leader",
            "start all members with the same program and --config",
        )
        .await;
}
