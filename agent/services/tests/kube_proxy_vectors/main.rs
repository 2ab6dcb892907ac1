//! Decisions are kube-proxy's: every recorded outcome of the real one is reproduced.
//!
//! Reads `tests/vectors/*.jsonl.gz`, or the folder of `.jsonl` files that `DORMOUSE_KUBE_PROXY_VECTORS` names.
#![expect(
    clippy::unwrap_used,
    reason = "the vectors' form is fixed: another one must fail the test"
)]

mod outcomes;
mod recorded;
mod scenario;
mod service_ports;
mod tally;
mod wanted;

use std::path::Path;

use dormouse_agent_services::Strictness;
use scenario::Run;
use tally::Tally;

#[test]
fn kube_proxy_vectors() {
    let tally = replay(Strictness::KubeProxy);
    println!("{tally}");
    assert!(
        tally.decisions() > 40_000,
        "too few decisions read: {tally}"
    );
    assert_eq!(tally.differences(), 0, "{tally}");
}

#[test]
fn our_own_decisions_differ_only_where_it_is_wanted() {
    let tally = replay(Strictness::Ours);
    let differing: Vec<_> = tally.differing().collect();
    let wanted = wanted::DIFFERENCES.iter();
    let wanted: Vec<_> = wanted.map(|(id, topic, _)| (*id, *topic)).collect();
    assert_eq!(differing, wanted, "{tally}");
    assert_eq!(tally.differing_verdicts(), ["reject"]);
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
