//! Decisions are kube-scheduler's: every recorded decision of the real one is reproduced, also for a cluster in parts, and
//! by the index.
//!
//! Reads `tests/vectors/*.jsonl.gz`, or the folder of `.jsonl` files that `DORMOUSE_KUBE_SCHEDULER_VECTORS` names.
#![expect(
    clippy::unwrap_used,
    reason = "the vectors' form is fixed: another one must fail the test"
)]

mod cluster;
mod compare;
mod indexed;
mod parts;
mod queue;
mod replay;

use std::path::Path;

use dormouse_vectors::{Tally, Vectors};
use serde_json::Value;

/// The variable that names another folder of vectors.
const FOLDER: &str = "DORMOUSE_KUBE_SCHEDULER_VECTORS";

/// What was compared with the records, and with the decision that was.
#[derive(Default)]
pub(crate) struct Tallies {
    pub(crate) whole: Tally,
    pub(crate) in_parts: Tally,
    pub(crate) indexed: Tally,
}

impl Tallies {
    fn begin(&mut self, id: &Value, group: &Value) {
        for tally in [&mut self.whole, &mut self.in_parts, &mut self.indexed] {
            tally.begin(id, group);
        }
    }
}

#[test]
fn kube_scheduler_vectors() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let vectors = Vectors::find(&own, FOLDER);
    let mut tallies = Tallies::default();
    for scenario in vectors.scenarios() {
        tallies.begin(&scenario["id"], &scenario["group"]);
        replay::replay(&scenario, &mut tallies);
    }
    let Tallies {
        whole: tally,
        in_parts,
        indexed,
    } = tallies;
    println!("{tally}\nIn parts: {in_parts}\nBy the index: {indexed}");
    let least = if vectors.is_own() { 50_000 } else { 1 };
    assert!(
        tally.decisions() >= least,
        "too few decisions read: {tally}"
    );
    assert_eq!(tally.differences(), 0, "{tally}");
    assert_eq!(in_parts.differences(), 0, "in parts: {in_parts}");
    assert_eq!(indexed.differences(), 0, "by the index: {indexed}");
}
