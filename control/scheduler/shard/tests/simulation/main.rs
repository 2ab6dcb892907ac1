//! Simulation of leader, relays and shards in virtual time, with late messages, broken connections, and members that crash and
//! start again: no pod is lost or bound twice, no node is over-committed, and without crashes every decision is that of a
//! scheduler of one part.
//!
//! A failure names its seed; `SIMULATION_SEED=N cargo test -p dormouse-scheduler-shard --test simulation` runs that seed alone.
#![expect(
    clippy::unwrap_used,
    reason = "the objects are written here: a malformed one must fail the test"
)]

mod api;
mod network;
mod objects;
mod shadow;
mod world;

use std::ops::RangeInclusive;
use std::time::Duration;

use world::{Faults, World};

/// The seeds of a test, or the one to run again.
fn seeds(all: RangeInclusive<u64>) -> RangeInclusive<u64> {
    let one = std::env::var("SIMULATION_SEED").ok();
    one.map_or(all, |seed| {
        let seed = seed.parse().unwrap();
        seed..=seed
    })
}

fn run(seed: u64, faults: Faults) -> World {
    let mut world = World::new(seed, faults);
    world
        .run()
        .unwrap_or_else(|error| panic!("SIMULATION_SEED={seed}: {error}"));
    world
}

#[test]
fn without_crashes_every_decision_is_that_of_one_part() {
    let (mut placed, mut rejected, mut evicted) = (0, 0, 0);
    for seed in seeds(1..=40) {
        let world = run(seed, Faults::default());
        let shadow = world.shadow.as_ref().unwrap();
        placed += shadow.placed;
        rejected += shadow.rejected;
        evicted += world.api.evicted;
    }
    let runs = seeds(1..=40).count();
    assert!(
        placed > 20 * runs && rejected > runs && evicted > runs / 2,
        "{placed} placed, {rejected} rejected, {evicted} evicted: too few to prove anything"
    );
}

#[test]
fn with_crashes_no_pod_is_lost_or_bound_twice_and_no_node_is_over_committed() {
    let (mut bound, mut crashes, mut repeated, mut refused) = (0, 0, 0, 0);
    for seed in seeds(1..=60) {
        let faults = Faults {
            crashes: true,
            window: if seed % 2 == 0 { 1 } else { 5 },
            ..Faults::default()
        };
        let world = run(seed, faults);
        bound += world.api.bound;
        crashes += world.crashes;
        repeated += world.repeated();
        refused += world.api.refused;
    }
    let runs = seeds(1..=60).count();
    assert!(
        bound > 20 * runs && crashes > 5 * runs && repeated > 3 * runs && refused > runs / 4,
        "{bound} bound, {crashes} crashes, {repeated} attempts repeated, {refused} bindings refused: too few to prove anything"
    );
}

#[test]
fn shards_that_are_left_out_are_counted_and_their_late_answers_bind_nothing() {
    let (mut inexact, mut missing) = (0, 0);
    for seed in seeds(1..=20) {
        let faults = Faults {
            straggler: Some(Duration::from_millis(30)),
            window: 5,
            ..Faults::default()
        };
        let world = run(seed, faults);
        inexact += world.inexact();
        missing += world.missing();
    }
    assert!(inexact > 20, "{inexact} inexact decisions");
    assert!(
        missing >= usize::try_from(inexact).unwrap(),
        "{missing} shards missing"
    );
}
