//! Decisions are kube-proxy's: every recorded outcome of the real one is reproduced.
//!
//! Reads `tests/vectors/*.jsonl.gz`, or the folder of `.jsonl` files that `DORMOUSE_KUBE_PROXY_VECTORS` names.
#![expect(
    clippy::unwrap_used,
    reason = "the vectors' form is fixed: another one must fail the test"
)]

#[path = "kube_proxy_vectors/outcomes.rs"]
mod outcomes;
#[path = "kube_proxy_vectors/scenario.rs"]
mod scenario;
#[path = "kube_proxy_vectors/service_ports.rs"]
mod service_ports;
#[path = "kube_proxy_vectors/tally.rs"]
mod tally;
#[path = "kube_proxy_vectors/wanted.rs"]
mod wanted;

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;

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
    for scenario in scenarios() {
        tally.begin(&scenario);
        let mut run = Run::new(&scenario["node"], strictness);
        for step in scenario["steps"].as_array().unwrap() {
            run.step(step, &mut tally);
        }
    }
    tally
}

fn scenarios() -> Vec<Value> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let folder = std::env::var_os("DORMOUSE_KUBE_PROXY_VECTORS").map_or(here, PathBuf::from);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("read {}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(".jsonl"))
        .collect();
    files.sort();
    files.iter().flat_map(|path| lines(path)).collect()
}

fn lines(path: &Path) -> Vec<Value> {
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        GzDecoder::new(&bytes[..])
            .read_to_string(&mut text)
            .unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
