//! Preemption, as PreemptionBasic of kube-scheduler's benchmarks has it: nodes that are full of pods of low priority, and pods of
//! high priority, each of which needs some of them to go.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use dormouse_cluster::{Change, Key, Object};
use dormouse_rows::{Bound, Row};
use dormouse_scheduler::Profile;
use dormouse_scheduler::state::{Outcome, State, Step, Verdict, Work};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::objects::{node, pod};

const NODES: usize = 5_000;
/// Pods of low priority on each node, which they fill.
const LOW_PER_NODE: usize = 4;
const HIGH: usize = 5_000;
/// The longest backoff, which passes when no pod is to be decided on.
const BACKOFF: SignedDuration = SignedDuration::from_secs(10);

/// A row of the pods of high priority that get their nodes in a second, with their victims.
pub(crate) fn rows() -> Result<()> {
    let (mut state, mut now) = (full()?, Timestamp::UNIX_EPOCH);
    let high = (0..HIGH).map(|index| pod(&format!("high-{index:04}"), ("3000m", "500Mi"), 10));
    let high = high.collect::<Result<Vec<_>>>()?;
    let begin = Instant::now();
    for pod in high {
        state.apply(now, &change(pod));
    }
    let (mut placed, mut evicted) = (0, 0);
    while placed < HIGH {
        let Some(step) = state.step(now) else {
            now = now.checked_add(BACKOFF)?;
            ensure!(now.as_second() < 600, "{placed} pods have a node");
            continue;
        };
        let Step::Write(work) = step else {
            bail!("a pod is neither placed nor rejected");
        };
        match end(&mut state, now, *work)? {
            None => placed += 1,
            Some(victims) => evicted += victims,
        }
    }
    let rate = HIGH as f64 / begin.elapsed().as_secs_f64();
    Row::new(
        "H: preemption, 5k nodes, 20k pods of low priority, then 5k of high priority",
        rate,
        "pods/s",
    )
    .must(Bound::AtLeast(5e3))
    .print()?;
    Row::new("H: victims of a pod", evicted as f64 / HIGH as f64, "").print()
}

/// The cluster before.
fn full() -> Result<State> {
    let mut state = State::new(vec![Profile::default()], 36);
    for index in 0..NODES {
        let node = node(index, ("4", "32Gi"))?;
        let name = node.metadata.name.clone().unwrap_or_default();
        let key = Key::cluster_scoped(&*name);
        state.apply(
            Timestamp::UNIX_EPOCH,
            &Change::Node(key, Some(Arc::new(node))),
        );
        for number in 0..LOW_PER_NODE {
            let mut low = pod(&format!("low-{index:04}-{number}"), ("900m", "500Mi"), 0)?;
            low.spec.get_or_insert_default().node_name = Some(name.clone());
            state.apply(Timestamp::UNIX_EPOCH, &change(low));
        }
    }
    Ok(state)
}

fn change(pod: Pod) -> Change {
    Change::Pod(pod.key(), Some(Arc::new(pod)))
}

/// Does what is written for a pod: it is bound, or its victims are deleted, whose number is returned.
fn end(state: &mut State, now: Timestamp, work: Work) -> Result<Option<usize>> {
    let Some(attempt) = work.attempt else {
        bail!("a pod does not enter the queue");
    };
    match work.verdict {
        Verdict::Placed(node) => {
            state.finish(now, attempt, Outcome::Bound);
            let mut bound = Arc::unwrap_or_clone(work.pod);
            bound.spec.get_or_insert_default().node_name = Some(node);
            state.apply(now, &change(bound));
            Ok(None)
        }
        Verdict::Rejected(rejection) => {
            let victims = rejection.eviction.map(|eviction| eviction.victims);
            let victims = victims.unwrap_or_default();
            for victim in &victims {
                let key = Key::new(&*victim.key.namespace, &*victim.key.name);
                state.apply(now, &Change::Pod(key, None));
            }
            state.finish(now, attempt, Outcome::Rejected);
            Ok(Some(victims.len()))
        }
    }
}
