//! Decisions are kube-scheduler's: every recorded decision of the real one is reproduced, also for a cluster in parts.
//!
//! Reads `tests/vectors/*.jsonl.gz`, or the folder of `.jsonl` files that `DORMOUSE_KUBE_SCHEDULER_VECTORS` names.
#![expect(
    clippy::unwrap_used,
    reason = "the vectors' form is fixed: another one must fail the test"
)]

mod cluster;
mod compare;
mod parts;
mod queue;
mod replay;

use std::path::Path;

use dormouse_vectors::{Tally, Vectors};

/// The variable that names another folder of vectors.
const FOLDER: &str = "DORMOUSE_KUBE_SCHEDULER_VECTORS";

#[test]
fn kube_scheduler_vectors() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let vectors = Vectors::find(&own, FOLDER);
    let (mut tally, mut in_parts) = (Tally::default(), Tally::default());
    for scenario in vectors.scenarios() {
        tally.begin(&scenario["id"], &scenario["group"]);
        in_parts.begin(&scenario["id"], &scenario["group"]);
        replay::replay(&scenario, &mut tally, &mut in_parts);
    }
    println!("{tally}\nIn parts: {in_parts}");
    let least = if vectors.is_own() { 50_000 } else { 1 };
    assert!(
        tally.decisions() >= least,
        "too few decisions read: {tally}"
    );
    assert_eq!(tally.differences(), 0, "{tally}");
    assert_eq!(in_parts.differences(), 0, "in parts: {in_parts}");
}
