//! Golden vectors of Knative's autoscaler: every recorded decision is reproduced.
//!
//! The vectors are `tests/vectors/*.jsonl.gz`, or `.jsonl` files in the folder that `DORMOUSE_KPA_VECTORS` names.
#![expect(
    clippy::unwrap_used,
    reason = "the vectors' format is fixed: another one must fail the test"
)]

mod autoscaler;
mod kpa;
mod settings;
mod tally;
mod window;

use std::path::Path;

use dormouse_vectors::Vectors;

use tally::Tally;

/// The variable that names another folder of vectors.
const FOLDER: &str = "DORMOUSE_KPA_VECTORS";

#[test]
fn every_recorded_decision_is_reproduced() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let vectors = Vectors::find(&own, FOLDER);
    let mut tally = Tally::default();
    for scenario in vectors.scenarios() {
        tally.begin(&scenario);
        match scenario["kind"].as_str() {
            Some("window") => window::window(&scenario, &mut tally),
            Some("delay") => window::delay(&scenario, &mut tally),
            Some("activators") => kpa::activators(&scenario, &mut tally),
            Some("autoscaler") => autoscaler::run(&scenario, &mut tally),
            Some("kpa") => kpa::run(&scenario, &mut tally),
            Some("settings") => settings::run(&scenario, &mut tally),
            kind => panic!("unknown kind {kind:?}"),
        }
    }
    println!("{}", tally.counts);
    let least = if vectors.is_own() { 10_000 } else { 1 };
    assert!(
        tally.counts.decisions() >= least,
        "too few decisions read: {}",
        tally.counts
    );
    assert_eq!(tally.counts.differences(), 0, "{}", tally.counts);
}
