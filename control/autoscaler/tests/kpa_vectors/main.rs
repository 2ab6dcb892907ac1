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

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;

use tally::Tally;

/// The variable that names another folder of vectors.
const FOLDER: &str = "DORMOUSE_KPA_VECTORS";

#[test]
fn every_recorded_decision_is_reproduced() {
    let mut tally = Tally::default();
    for scenario in scenarios() {
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
    println!("{tally}");
    let least = if std::env::var_os(FOLDER).is_some() {
        1
    } else {
        10_000
    };
    assert!(
        tally.decisions() >= least,
        "too few decisions read: {tally}"
    );
    assert_eq!(tally.differences(), 0, "{tally}");
}

fn scenarios() -> Vec<Value> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let folder = std::env::var_os(FOLDER).map_or(here, PathBuf::from);
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
