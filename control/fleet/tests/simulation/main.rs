//! Simulation of both halves of the stream in virtual time, with late messages, lost streams, cut networks, frozen and
//! restarted agents, and control that dies with or without its activator: no packet is sent to a removed pod while an
//! activator can be reached, awake apps are served without control, and connections are divided as control published. Leaving out any one rule makes a run fail.
//!
//! A failure names its seed; `SIMULATION_SEED=N cargo test -p dormouse-fleet --test simulation` runs that seed alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod machine;
mod world;

use std::ops::RangeInclusive;
use std::time::Duration;

use dormouse_fleet::lease::Terms;
use dormouse_fleet_simulation::Rule;
use world::World;

const NODES: usize = 5;
const VIPS: u32 = 4;
/// The VIPs that a node may follow: not all.
const FOLLOWS_MAX: usize = 3;
const TICK: Duration = Duration::from_millis(20);
const TICKS: u32 = 1_000;
const SEEDS: RangeInclusive<u64> = 1..=2_000;
/// Time without use after which an entry is dropped.
const IDLE: Duration = Duration::from_secs(2);
const HOUR: Duration = Duration::from_hours(1);
const TERMS: Terms = Terms {
    lease: Duration::from_secs(1),
};

/// The rule that a run leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    KernelCheck,
    /// One of a node.
    Node(Rule),
    LeaseFromSending,
    AcknowledgeInForce,
    SettleWait,
    NewRootWaits,
    GraceBeforeGrant,
    EndedSessionsCount,
    /// An unused entry is dropped when no program can use it any more.
    GraceBeforeDrop,
    /// Entries that were in flight when their VIP was dropped are not applied.
    DroppedEntriesIgnored,
    /// The entry of divided traffic is composed again when that of a target changes.
    SplitsComposedAgain,
    /// A node follows no VIP that control has not got.
    GoneUnfollowed,
    /// Connections are counted as uses: above the limit, the VIPs used least recently are dropped.
    UsesCounted,
}

impl Without {
    fn of_node(self) -> Option<Rule> {
        match self {
            Self::Node(rule) => Some(rule),
            _ => None,
        }
    }
}

/// The seeds of a test, or the one to run again.
fn seeds(all: RangeInclusive<u64>) -> RangeInclusive<u64> {
    let one = std::env::var("SIMULATION_SEED").ok();
    one.map_or(all, |seed| {
        let seed = seed.parse().unwrap();
        seed..=seed
    })
}

#[test]
fn no_packet_is_sent_to_a_removed_pod() {
    let (mut removed, mut stale, mut dropped) = (0, 0, 0);
    for seed in seeds(SEEDS) {
        let mut world = World::new(seed, Without::Nothing);
        world
            .run(TICKS)
            .unwrap_or_else(|error| panic!("SIMULATION_SEED={seed}: {error}"));
        removed += world.seen.removed;
        stale += world.seen.stale;
        let drops = world.machines.iter().map(|machine| machine.dropped);
        dropped += drops.sum::<usize>();
    }
    let runs = seeds(SEEDS).count();
    assert!(
        removed > 5 * runs && stale > 5 * runs && dropped > 5 * runs,
        "{removed} pods were removed, {stale} connections were stale, {dropped} entries were dropped: too few to prove anything"
    );
}

/// Refused connections to awake apps while control and activator are dead for an hour.
fn refused_in_an_hour_without_control(seed: u64, without: Without) -> Result<usize, String> {
    let mut world = World::new(seed, without);
    world.run_calmly(500)?;
    let pods = world.apps.pods.clone();
    world.seen.refused = 0;
    world.kill_control_for(HOUR, true);
    let ticks = u32::try_from(HOUR.as_millis() / TICK.as_millis()).unwrap();
    world.run_calmly(ticks - 1)?;
    if world.seen.stale == 0 || world.apps.pods != pods {
        return Err("no app was used without a lease".to_owned());
    }
    Ok(world.seen.refused)
}

#[test]
fn no_connection_to_an_awake_app_fails_while_control_is_dead_for_an_hour() {
    for seed in seeds(1..=4) {
        let refused = refused_in_an_hour_without_control(seed, Without::Nothing);
        assert_eq!(refused, Ok(0), "SIMULATION_SEED={seed}");
    }
    let refused = refused_in_an_hour_without_control(1, Without::Node(Rule::StaleMode));
    assert!(refused != Ok(0), "{refused:?}");
}

#[test]
fn after_an_outage_every_node_has_the_newest_entry_of_each_vip_that_it_follows() {
    for seed in seeds(1..=100) {
        let mut world = World::new(seed, Without::Nothing);
        world.run(TICKS).unwrap();
        world.kill_control_for(10 * TERMS.lease, seed % 2 == 0);
        world.run_still(1_000).unwrap();
        assert!(
            world.apps.removing.is_empty(),
            "SIMULATION_SEED={seed}: everything settles"
        );
        for machine in &world.machines {
            assert!(
                machine.node.is_leased(world.now) && !machine.node.is_stale,
                "SIMULATION_SEED={seed}: the lease is renewed"
            );
            let words = machine.kernel.words.iter();
            for (vip, word) in words.filter(|(vip, _)| !machine.drops(**vip)) {
                assert!(
                    world.is_newest(*vip, word),
                    "SIMULATION_SEED={seed}: {word:?} of VIP {vip}"
                );
            }
        }
    }
}

#[test]
fn without_control_and_activator_the_targets_that_serve_have_all_connections_also_for_an_agent_that_starts()
 {
    for seed in seeds(1..=100) {
        let mut world = World::new(seed, Without::Nothing);
        world.divide_with_one_asleep();
        world.run_still(200).unwrap();
        assert_eq!(world.nodes_that_serve(), 0, "the activator wakes the other");
        world.kill_control_for(10 * TERMS.lease, true);
        for index in 0..NODES {
            world.machines[index].restart(index);
        }
        world.run_still(200).unwrap();
        assert_eq!(world.nodes_that_serve(), NODES, "SIMULATION_SEED={seed}");
        world.run_still(1_000).unwrap();
        assert_eq!(world.nodes_that_serve(), 0, "SIMULATION_SEED={seed}");
    }
}

/// Apps are created and deleted, and packets go to all VIPs: a node follows those that exist, up to its limit.
fn follows_what_exists(seed: u64, without: Without) -> Result<(), String> {
    let mut world = World::new(seed, without);
    world.run(TICKS)?;
    world.kill_control_for(10 * TERMS.lease, false);
    world.run_still(1_000)?;
    world.follows_what_exists()
}

#[test]
fn a_node_follows_the_vips_that_exist_and_are_used() {
    for seed in seeds(1..=100) {
        let follows = follows_what_exists(seed, Without::Nothing);
        assert_eq!(follows, Ok(()), "SIMULATION_SEED={seed}");
    }
    let without = Without::GoneUnfollowed;
    let caught = seeds(1..=100).find(|seed| follows_what_exists(*seed, without).is_err());
    assert!(caught.is_some(), "no run failed without {without:?}");
}

#[test]
fn leaving_out_any_rule_is_detected() {
    for without in [
        Without::KernelCheck,
        Without::LeaseFromSending,
        Without::AcknowledgeInForce,
        Without::SettleWait,
        Without::NewRootWaits,
        Without::Node(Rule::GrantInOrder),
        Without::GraceBeforeGrant,
        Without::EndedSessionsCount,
        Without::Node(Rule::GrantAfterAnswers),
        Without::Node(Rule::ActivatorFirst),
        Without::Node(Rule::AnswerEndsStale),
        Without::Node(Rule::GrantEndsStale),
        Without::GraceBeforeDrop,
        Without::DroppedEntriesIgnored,
        Without::SplitsComposedAgain,
        Without::UsesCounted,
    ] {
        let caught = seeds(SEEDS).find(|seed| World::new(*seed, without).run(TICKS).is_err());
        assert!(caught.is_some(), "no run failed without {without:?}");
    }
}
