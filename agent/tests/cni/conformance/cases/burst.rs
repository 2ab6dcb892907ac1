//! 12. Many ADDs at once on a node that has just started: one bridge, one gateway, no address twice.

use std::collections::BTreeSet;

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, same};
use crate::conformance::run::Versions::Newest;
use crate::conformance::run::{Case, case};
use crate::conformance::stage::{Stage, address};
use dormouse_rig::Netns;

pub(crate) const CASES: &[Case] = &[
    case("burst/all at once on a fresh node", Newest, fresh),
    case("burst/ADD and DEL among each other", Newest, mixed),
];

const PODS: usize = 16;

fn pods(stage: &Stage<'_>) -> Vec<(String, Netns)> {
    let names = (0..PODS).map(|number| format!("c{number}"));
    names
        .map(|name| {
            let pod = stage.pod(&name);
            (name, pod)
        })
        .collect()
}

/// Does this for each of them at the same time.
fn at_once<T: Send, I: Sync>(items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items
            .iter()
            .map(|item| scope.spawn(move || work(item)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn fresh(stage: &mut Stage<'_>) -> Outcome {
    let stage = &*stage;
    let pods = pods(stage);
    let results = at_once(&pods, |(name, pod)| stage.add(name, pod).ok());
    let results = results.into_iter().collect::<Outcome<Vec<_>>>()?;
    let addresses = results
        .iter()
        .map(address)
        .collect::<Outcome<BTreeSet<_>>>()?;
    same("addresses", &addresses.len(), &PODS)?;
    let bridges: BTreeSet<_> = results
        .iter()
        .map(|r| r["interfaces"][0]["name"].to_string())
        .collect();
    same("bridges", &bridges.len(), &1)?;
    for ((name, pod), result) in pods.iter().zip(&results) {
        stage.check(name, pod, result).silent()?;
    }
    Ok(())
}

fn mixed(stage: &mut Stage<'_>) -> Outcome {
    let before = stage.settled()?;
    let stage = &*stage;
    let pods = pods(stage);
    let rounds = at_once(&pods, |(name, pod)| {
        (0..3).try_for_each(|_| {
            let result = stage.add(name, pod).ok()?;
            stage.check(name, pod, &result).silent()?;
            stage.del(name, pod, &result).silent()
        })
    });
    rounds.into_iter().collect::<Outcome>()?;
    stage.world().is_as(&before)
}
