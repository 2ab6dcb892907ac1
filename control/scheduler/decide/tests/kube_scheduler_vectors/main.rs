//! Decisions are kube-scheduler's: every recorded decision of the real one is reproduced.
//!
//! Reads `tests/vectors/*.jsonl.gz`, or the folder of `.jsonl` files that `DORMOUSE_KUBE_SCHEDULER_VECTORS` names.
#![expect(
    clippy::unwrap_used,
    reason = "the vectors' form is fixed: another one must fail the test"
)]

mod cluster;
mod compare;
mod queue;
mod replay;
mod tally;

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;

use tally::Tally;

/// The variable that names another folder of vectors.
const FOLDER: &str = "DORMOUSE_KUBE_SCHEDULER_VECTORS";

#[test]
fn kube_scheduler_vectors() {
    let mut tally = Tally::default();
    for path in files() {
        for scenario in lines(&path) {
            tally.begin(&scenario);
            replay::replay(&scenario, &mut tally);
        }
    }
    println!("{tally}");
    let least = if std::env::var_os(FOLDER).is_some() {
        1
    } else {
        50_000
    };
    assert!(
        tally.decisions() >= least,
        "too few decisions read: {tally}"
    );
    assert_eq!(tally.differences(), 0, "{tally}");
}

fn files() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let folder = std::env::var_os(FOLDER).map_or(here, PathBuf::from);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("read {}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(".jsonl"))
        .collect();
    files.sort();
    files
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
