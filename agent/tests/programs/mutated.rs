//! Mutated packets through every packet program: each is dropped, left to the kernel, or sent on as the oracle allows.
//!
//! Half of them are the same in each run, the others new ones. What a program must not do is reported with the command that
//! repeats it.

mod bytes;
mod mutation;
mod oracle;
mod random;
mod services;
pub(super) mod world;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use dormouse_agent_datapath::{Datapath, Hook, Run};
use dormouse_rig::tcx::REDIRECT;
use dormouse_rig::xdp::{DROP, TX};

use self::mutation::mutate;
use self::oracle::{Outcome, is_to_vip, judge};
use self::random::Random;
use super::node::with_node;
use super::xdp;

/// Packets, each through one program, where the environment does not say otherwise.
const PACKETS: u64 = 1_000_000;
const THREADS: u64 = 2;
/// Times that a packet may come back from the router.
const RETURNS_MAX: usize = 4;
/// The random sequence that is the same in each run.
const FIXED_SEED: u64 = 1;
/// The number of packets, and that of their random sequence.
const PACKETS_VARIABLE: &str = "DORMOUSE_MUTATED_PACKETS";
const SEED_VARIABLE: &str = "DORMOUSE_MUTATED_SEED";

/// How far all threads are.
struct Progress {
    packets: u64,
    done: AtomicU64,
    began: Instant,
}

impl Progress {
    /// One more packet is done; each percent is a line.
    fn step(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of((self.packets / 100).max(1)) {
            let (percent, seconds) = (100 * done / self.packets, self.began.elapsed().as_secs());
            eprintln!("{percent}% after {seconds} s");
        }
    }
}

/// What became of the packets.
#[derive(Default)]
struct Tally {
    /// The command that repeats them.
    replay: String,
    /// How many packets of a program had which outcome.
    outcomes: BTreeMap<(&'static str, Outcome), u64>,
    /// What a program must not do: how often it did, and the first packet.
    wrong: BTreeMap<(&'static str, &'static str), (u64, String)>,
}

impl Tally {
    /// Judges and counts a run.
    fn judge(&mut self, hook: Hook, number: u64, sent: &[u8], run: &Run) -> Option<Outcome> {
        match judge(hook, sent, run) {
            Ok(outcome) => {
                self.count(hook, outcome);
                Some(outcome)
            }
            Err(wrong) => {
                self.mistake((hook.program(), wrong), number, || {
                    format!("{sent:02x?}\n became {run:02x?}")
                });
                None
            }
        }
    }

    fn count(&mut self, hook: Hook, outcome: Outcome) {
        *self.outcomes.entry((hook.program(), outcome)).or_default() += 1;
    }

    /// Counts what a program must not do, with its first packet.
    fn mistake(
        &mut self,
        wrong: (&'static str, &'static str),
        number: u64,
        packet: impl FnOnce() -> String,
    ) {
        let replay = &self.replay;
        let example = || (0, format!("packet {number} of {replay}: {}", packet()));
        self.wrong.entry(wrong).or_insert_with(example).0 += 1;
    }

    fn add(&mut self, other: Self) {
        for (key, count) in other.outcomes {
            *self.outcomes.entry(key).or_default() += count;
        }
        for (key, (count, example)) in other.wrong {
            self.wrong.entry(key).or_insert((0, example)).0 += count;
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// Whether a packet that was sent on to a VIP, which the router sends back, is sent on each time.
fn goes_round(datapath: &Datapath, first: &Run) -> bool {
    let is_sent = |run: &Run| run.verdict == REDIRECT && is_to_vip(&run.frame);
    let mut frame = first.frame.clone();
    is_sent(first)
        && (0..RETURNS_MAX).all(|_| {
            let run = datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
            frame.clone_from(&run.frame);
            is_sent(&run)
        })
}

/// What becomes of a packet by the XDP program, which sends what the classifier sends.
fn in_driver(
    datapath: &Datapath,
    sent: &[u8],
    run: &Run,
    classified: Option<Outcome>,
) -> Result<Outcome, &'static str> {
    match xdp::compare(datapath, sent, run)? {
        TX => classified.ok_or("XDP sends what the classifier must not"),
        DROP => Ok(Outcome::Dropped),
        _ => Ok(Outcome::Left),
    }
}

/// Runs mutated packets on a node of its own.
fn run(seed: u64, packets: u64, progress: Arc<Progress>) -> Tally {
    let (result, tally) = std::sync::mpsc::sync_channel(1);
    with_node(move |node| {
        let datapath = world::open(node);
        let seeds = [world::seeds(), world::replies(&datapath)].concat();
        let mut random = Random::new(seed);
        let mut tally = Tally {
            replay: replay(seed, packets),
            ..Tally::default()
        };
        for number in 0..packets {
            let (hook, frame) = mutate(&seeds, &mut random);
            let run = datapath.programs.run(hook, &frame).unwrap();
            let outcome = tally.judge(hook, number, &frame, &run);
            let packet = || format!("{frame:02x?}");
            if goes_round(&datapath, &run) {
                let wrong = "it goes back and forth to the router";
                tally.mistake((hook.program(), wrong), number, packet);
            }
            if hook == Hook::UplinkIn {
                match in_driver(&datapath, &frame, &run, outcome) {
                    Ok(outcome) => tally.count(Hook::UplinkXdp, outcome),
                    Err(wrong) => tally.mistake((Hook::UplinkXdp.program(), wrong), number, packet),
                }
            }
            progress.step();
        }
        result.send(tally).unwrap();
    });
    tally.recv().unwrap()
}

/// The command that sends a thread's packets again.
fn replay(seed: u64, packets: u64) -> String {
    let all = packets * THREADS;
    format!(
        "{SEED_VARIABLE}={seed} {PACKETS_VARIABLE}={all} cargo test -p dormouse-agent --test programs mutated"
    )
}

/// The random sequences to run: the one that the environment names, else the fixed one and a new one.
fn seeds() -> Vec<u64> {
    let new = || RandomState::new().hash_one(FIXED_SEED) >> 32;
    variable(SEED_VARIABLE).map_or_else(|| vec![FIXED_SEED, new()], |seed| vec![seed])
}

/// Runs each sequence, and those after it, by all threads.
fn run_all(seeds: &[u64], packets: u64, progress: &Arc<Progress>) -> Tally {
    let mut tally = Tally::default();
    for &seed in seeds {
        println!("mutated packets: {}", replay(seed, packets));
        thread::scope(|scope| {
            let start = |thread| {
                let progress = Arc::clone(progress);
                scope.spawn(move || run(seed + thread, packets, progress))
            };
            let running: Vec<_> = (0..THREADS).map(start).collect();
            for thread in running {
                tally.add(thread.join().unwrap());
            }
        });
    }
    tally
}

#[test]
fn no_mutated_packet_passes_that_must_not() {
    let packets = variable(PACKETS_VARIABLE).unwrap_or(PACKETS);
    let progress = Arc::new(Progress {
        packets,
        done: AtomicU64::new(0),
        began: Instant::now(),
    });
    let seeds = seeds();
    let of_thread = packets / seeds.len() as u64 / THREADS;
    let tally = run_all(&seeds, of_thread, &progress);
    let done = progress.done.load(Ordering::Relaxed);
    let seconds = progress.began.elapsed().as_secs_f64();
    println!("\npackets\t{done}\t{seconds}");
    for ((program, outcome), count) in &tally.outcomes {
        println!("{program}\t{outcome:?}\t{count}");
    }
    for ((program, wrong), (count, example)) in &tally.wrong {
        println!("{program}\twrong\t{count}\t{wrong}: {example}");
    }
    assert!(tally.wrong.is_empty(), "see above");
    // An oracle that sees nothing translated or answered checks nothing. The cgroup's program only denies what sockets of
    // Services send elsewhere, which a test run has not.
    let leaving = [Outcome::Dropped, Outcome::Left, Outcome::Translated];
    for (hook, outcomes) in [
        (Hook::UplinkIn, &Outcome::ALL[..]),
        (Hook::UplinkXdp, &Outcome::ALL[..]),
        (Hook::PodIn, &Outcome::ALL[..]),
        (Hook::UplinkOut, &leaving[..]),
        (Hook::PodOut, &leaving[1..]),
        (Hook::CgroupOut, &leaving[1..2]),
    ] {
        for outcome in outcomes {
            let count = tally.outcomes.get(&(hook.program(), *outcome));
            assert!(count.is_some(), "{hook:?}: no packet was {outcome:?}");
        }
    }
}
