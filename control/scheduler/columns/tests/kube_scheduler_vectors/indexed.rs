//! The decision by the index, beside the one that looks at each node.

use dormouse_scheduler_columns::Decision;
use dormouse_scheduler_decide::{Attempt, Outcome, Pod};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::compare::{plugins, preemption, sorted, verdict};
use dormouse_vectors::Tally;

pub(crate) fn compare(whole: &Attempt, cluster: &mut Cluster, pod: &Pod, tally: &mut Tally) {
    let decision = cluster.engine.decide(&cluster.scheduler_name, pod);
    tally.compare(
        &format!("{} by the index", pod.key()),
        &decided(&decision, whole),
        &wanted(whole),
    );
}

/// The decision; of the node, whether it is one of the best.
fn decided(decision: &Decision, whole: &Attempt) -> Value {
    match decision {
        Decision::Gated(status) => json!({"gated": verdict(status)}),
        Decision::Placed { node } => json!({"isBest": whole.best().contains(&&**node)}),
        Decision::Error(error) => json!({"error": error}),
        // Its message may be as old as the last event that could help.
        Decision::Unschedulable {
            message: _,
            plugins,
            nomination,
            preemption: found,
        } => {
            let plugins: Vec<_> = plugins.iter().map(ToString::to_string).collect();
            json!({"plugins": sorted(&plugins), "nomination": format!("{nomination:?}"),
                "preemption": preemption(found.as_ref())})
        }
    }
}

fn wanted(whole: &Attempt) -> Value {
    match &whole.outcome {
        Outcome::Gated(status) => json!({"gated": verdict(status)}),
        Outcome::Placed => json!({"isBest": true}),
        Outcome::Error(error) => json!({"error": error}),
        Outcome::Unschedulable(_) => {
            let mut found = whole.preemption.clone();
            if let Some(found) = &mut found {
                found.rejected.clear();
            }
            json!({"plugins": plugins(whole), "nomination": format!("{:?}", whole.nomination),
                "preemption": preemption(found.as_ref())})
        }
    }
}
