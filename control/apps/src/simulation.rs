//! Simulation of the whole of control in virtual time: the controller, the fleet's root and nodes, and the link to an activator are
//! the real pure cores; the store, the scheduler, kernels, processes and clients are models. Messages are late, streams break,
//! networks are cut, also those between control and the store, machines and agents freeze and restart, control and activator die together or alone, two controls run at
//! once, calls have no response. Leaving out any one of the rules below makes a run fail; `control/fleet/tests/simulation` leaves
//! out those of the fleet alone, over more seeds.
//!
//! A failure names its seed; `SIMULATION_SEED=N SIMULATION_LOG=1 cargo test -p dormouse-apps simulation -- --nocapture` runs that
//! seed alone, with a log.

mod activator;
mod calls;
mod checks;
mod clients;
mod control;
mod faults;
mod fleet;
mod jobs;
mod machine;
mod processes;
mod store;
mod streams;
mod world;

use std::ops::RangeInclusive;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dormouse_fleet::Boottime;
use dormouse_fleet_simulation::Rule;
use world::{Seen, World};

const NODES: usize = 4;
const APPS: u32 = 4;
const TICK: Duration = Duration::from_millis(20);
const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(1);
/// Time without control: 600 leases.
const ABSENCE: Duration = Duration::from_mins(10);
/// Ticks with faults, with load only, and without either until nothing happens any more.
const TICKS: [u32; 3] = [700, 400, 600];
const SEEDS: RangeInclusive<u64> = 1..=2_000;

/// The rule that a run leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    KernelCheck,
    /// One of a node.
    Node(Rule),
    SettleWait,
    /// What a node acknowledges may settle a change.
    SettleCheck,
    /// The timer for the ends of leases is set again when a change waits for an earlier one.
    LeaseTimer,
    GraceBeforeGrant,
    /// A stopping pod waits for its connections.
    Drain,
    /// Control handles what nodes report when it has listed the cluster.
    ListFirst,
    /// An activator drops the routes of an earlier control when the newer one has sent all of its own.
    CompleteAfterRoutes,
    /// An activator is healthy when it has all routes.
    HealthyWhenComplete,
    /// An activator uses its routes without a stream.
    RoutesOutliveStream,
    /// A control sends nodes something only while the store has confirmed its epoch.
    Confirmation,
    /// A control that has lost the epoch writes nothing.
    Fence,
    /// An activator gets routes in the order of their publication.
    LinkInOrder,
    /// An activator repeats what its requests need.
    RepeatedDemand,
    /// A pod whose creation had no response is its app's when it appears.
    AdoptedCreate,
    /// Ready pods of an earlier template leave only for ready successors.
    Successors,
    /// The writes of a node follow one another: its loss is not written after its return.
    NodeWritesInOrder,
}

impl Without {
    fn of_node(self) -> Option<Rule> {
        match self {
            Self::Node(rule) => Some(rule),
            _ => None,
        }
    }
}

/// Logs a step of a run that is reproduced.
fn log(now: Boottime, what: impl FnOnce() -> String) {
    static LOGS: LazyLock<bool> = LazyLock::new(|| std::env::var_os("SIMULATION_LOG").is_some());
    if *LOGS {
        println!("{:>6} ms  {}", now.0 / 1_000_000, what());
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

/// A run with faults, then with load only, then until nothing happens any more.
fn run(seed: u64, without: Without) -> Result<Seen, String> {
    let mut world = World::new(seed, without);
    let [faults, load, still] = TICKS;
    world.run(faults)?;
    world.run_calmly(load)?;
    world.run_until_quiet(still)?;
    world.check_wake()?;
    Ok(world.seen)
}

/// Two apps are awake, and every node follows one of them; the others sleep.
fn world_with_awake_apps(seed: u64, without: Without) -> Result<World, String> {
    let mut world = World::new(seed, without);
    for vip in [1, 4] {
        let (name, spec) = (world::app_name(vip), world::spec(vip, 1, 0));
        world.store.configure(world.now, &name, spec);
    }
    world.run_still(300)?;
    world.send_to_all(1)?;
    world.run_still(300)?;
    Ok(world)
}

/// Runs for [`ABSENCE`] after this fault, which takes control away from the store or from the nodes.
fn run_without_control(mut world: World, fault: impl FnOnce(&mut World)) -> Result<World, String> {
    let pods = world.store.pods.clone();
    fault(&mut world);
    world.seen = Seen::default();
    let ticks = u32::try_from(ABSENCE.as_millis() / TICK.as_millis()).unwrap();
    world.run_still(ticks - 100)?;
    if world.store.pods != pods {
        return Err("pods were changed without control".to_owned());
    }
    Ok(world)
}

/// Control and the activator are dead for [`ABSENCE`].
fn world_without_control(seed: u64, without: Without) -> Result<World, String> {
    let world = world_with_awake_apps(seed, without)?;
    run_without_control(world, |world| world.kill_control_for(ABSENCE, true))
}

/// Runs these seeds, spread over the cores; returns the lowest one that was found to fail.
fn run_all(seeds: RangeInclusive<u64>, without: Without) -> Result<Seen, (u64, String)> {
    let (next, end) = (AtomicU64::new(*seeds.start()), AtomicU64::new(*seeds.end()));
    let worker = || {
        let (mut total, mut failed) = (Seen::default(), None);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > end.load(Ordering::Relaxed) {
                return failed.map_or(Ok(total), Err);
            }
            match run(seed, without) {
                Ok(more) => total += more,
                Err(error) => {
                    end.fetch_min(seed, Ordering::Relaxed);
                    failed = Some((seed, error));
                }
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let ended: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let failed = ended.iter().filter_map(|ended| ended.as_ref().err());
    if let Some(failed) = failed.min_by_key(|(seed, _)| *seed) {
        return Err(failed.clone());
    }
    Ok(ended
        .into_iter()
        .flatten()
        .fold(Seen::default(), |mut all, seen| {
            all += seen;
            all
        }))
}

#[test]
fn everything_converges_and_nothing_is_sent_to_a_removed_pod() {
    let all = run_all(seeds(SEEDS), Without::Nothing);
    let seen = all.unwrap_or_else(|(seed, error)| panic!("SIMULATION_SEED={seed}: {error}"));
    let runs = seeds(SEEDS).count();
    let least = [seen.removed, seen.direct, seen.proxied, seen.stale];
    assert!(
        runs == 1 || least.iter().all(|count| *count > 5 * runs),
        "too little happened to prove anything: {seen:?}"
    );
}

#[test]
fn awake_apps_are_served_by_their_nodes_while_control_and_activator_are_dead() {
    for seed in seeds(1..=2) {
        let refused = world_without_control(seed, Without::Nothing).map(|world| world.seen);
        let refused = refused.unwrap_or_else(|error| panic!("SIMULATION_SEED={seed}: {error}"));
        assert_eq!(refused.refused, 0, "SIMULATION_SEED={seed}");
        assert!(refused.stale > 0, "no app was used without a lease");
    }
    let world = world_without_control(1, Without::Node(Rule::StaleMode)).unwrap();
    assert!(world.seen.refused > 0);
}

#[test]
fn awake_apps_are_served_while_control_cannot_reach_the_store() {
    let run = |seed| {
        let world = world_with_awake_apps(seed, Without::Nothing)?;
        let mut world = run_without_control(world, |world| world.cut_store(ABSENCE))?;
        let leased = world.machines.iter();
        let leased = leased
            .filter(|machine| machine.node.is_leased(world.now))
            .count();
        let before = world.seen;
        world.send_to_all(1)?;
        let answered = world.seen.direct + world.seen.proxied - before.direct - before.proxied;
        world.run_until_quiet(600)?;
        Ok::<_, String>((leased, before.refused, answered))
    };
    for seed in seeds(1..=2) {
        assert_eq!(run(seed), Ok((0, 0, NODES)), "SIMULATION_SEED={seed}");
    }
}

#[test]
fn leaving_out_any_rule_is_detected() {
    let mut unnoticed = Vec::new();
    for without in [
        Without::KernelCheck,
        Without::SettleWait,
        Without::SettleCheck,
        Without::LeaseTimer,
        Without::Node(Rule::GrantInOrder),
        Without::GraceBeforeGrant,
        Without::Node(Rule::GrantAfterAnswers),
        Without::Node(Rule::ActivatorFirst),
        Without::Node(Rule::AnswerEndsStale),
        Without::Node(Rule::GrantEndsStale),
        Without::Drain,
        Without::ListFirst,
        Without::CompleteAfterRoutes,
        Without::HealthyWhenComplete,
        Without::RoutesOutliveStream,
        Without::Confirmation,
        Without::Fence,
        Without::LinkInOrder,
        Without::RepeatedDemand,
        Without::AdoptedCreate,
        Without::Successors,
        Without::NodeWritesInOrder,
    ] {
        match run_all(seeds(SEEDS), without) {
            Ok(_) => unnoticed.push(without),
            Err((seed, error)) => println!("without {without:?}: SIMULATION_SEED={seed}: {error}"),
        }
    }
    assert!(unnoticed.is_empty(), "no run failed without {unnoticed:?}");
}
