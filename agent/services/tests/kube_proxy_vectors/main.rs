//! Decisions are kube-proxy's: every recorded outcome of the real one is reproduced.
//!
//! Reads `tests/vectors/*.jsonl.gz`, or the folder of `.jsonl` files that `DORMOUSE_KUBE_PROXY_VECTORS` names.
#![expect(
    clippy::unwrap_used,
    reason = "the vectors' form is fixed: another one must fail the test"
)]

mod outcomes;
mod scenario;
mod service_ports;
mod tally;

use std::path::Path;

use dormouse_agent_services::Strictness;
use dormouse_agent_services_samples::recorded;
use scenario::Run;
use tally::Tally;

#[test]
fn kube_proxy_vectors() {
    let counts = replay(Strictness::KubeProxy).counts;
    println!("core: {counts}");
    assert!(
        counts.decisions() > 99_000,
        "too few decisions read: {counts}"
    );
    assert_eq!(counts.differences(), 0, "{counts}");
}

#[test]
fn strict_source_ranges_refuse_where_no_range_is_valid_and_change_nothing_else() {
    let tally = replay(Strictness::SourceRanges);
    let counts = &tally.counts;
    println!("strict source ranges: core: {counts}");
    assert!(tally.refused > 500, "too few refusals: {}", tally.refused);
    assert_eq!(counts.differences(), 0, "{counts}");
}

fn replay(strictness: Strictness) -> Tally {
    let mut tally = Tally::default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    for scenario in recorded::scenarios(&folder) {
        tally.begin(&scenario);
        let mut run = Run::new(&scenario["node"], strictness);
        for step in scenario["steps"].as_array().unwrap() {
            run.step(step, &mut tally);
        }
    }
    tally
}
