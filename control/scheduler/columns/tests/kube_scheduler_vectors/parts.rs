//! The decision over a cluster in parts, beside the one over the whole.

use dormouse_scheduler_decide::{Attempt, Outcome, Pod, Scheduler};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::compare::{filter, outcome, plugins, preemption, scores, sorted};
use dormouse_vectors::Tally;

/// Compares where all nodes of the whole were looked at, as they are in parts.
pub(crate) fn compare(
    scheduler: &Scheduler,
    whole: &Attempt,
    cluster: &Cluster,
    pod: &Pod,
    tally: &mut Tally,
) {
    let is_sampled = whole.window.limit < cluster.snapshot.nodes_len();
    if is_sampled && whole.outcome == Outcome::Placed && !whole.is_nominated_only {
        return;
    }
    let parts = scheduler.clone().attempt_over(&cluster.parts, pod);
    tally.compare(
        &format!("{} in parts", pod.key()),
        &found(&parts),
        &found(whole),
    );
}

/// All that does not depend on the order of nodes. What was found before an error is of no use.
fn found(attempt: &Attempt) -> Value {
    let (result, message) = outcome(&attempt.outcome);
    let mut best: Vec<String> = attempt.best().into_iter().map(str::to_owned).collect();
    best.sort();
    let mut all = json!({"result": result, "message": message, "nominations": format!("{:?}", attempt.nomination),
        "best": best, "plugins": plugins(attempt), "preemption": preemption(attempt.preemption.as_ref())});
    if !matches!(attempt.outcome, Outcome::Error(_)) {
        all["feasible"] = sorted(&attempt.feasible);
        all["filter"] = filter(attempt);
        all["scores"] = scores(attempt);
    }
    all
}
