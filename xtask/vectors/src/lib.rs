//! Golden vectors: what other programs answered, recorded as JSON Lines, one scenario in a line. How they are found and read, and
//! how decisions are compared with them. For tests.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "the vectors' form is fixed: another one must fail the test"
)]

mod tally;

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;

pub use tally::Tally;

/// A folder of vectors: files `NAME.jsonl` or `NAME.jsonl.gz`.
#[derive(Clone, Debug)]
pub struct Vectors {
    folder: PathBuf,
    is_own: bool,
}

impl Vectors {
    /// The repository's vectors in `folder`, or those in the folder that the environment's `variable` names.
    pub fn find(folder: &Path, variable: &str) -> Self {
        let named = std::env::var_os(variable);
        Self {
            is_own: named.is_none(),
            folder: named.map_or_else(|| folder.to_owned(), PathBuf::from),
        }
    }

    /// Whether they are the repository's, of which it is known how many there are.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// The scenarios of all files, in order of the files' names. One file is in memory at a time.
    pub fn scenarios(&self) -> impl Iterator<Item = Value> + use<> {
        let folder = &self.folder;
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap_or_else(|error| panic!("read {}: {error}", folder.display()))
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().contains(".jsonl"))
            .collect();
        files.sort();
        files.into_iter().flat_map(|path| lines(&path))
    }

    /// The lines of the file of this name.
    pub fn named(&self, name: &str) -> Vec<Value> {
        let plain = self.folder.join(format!("{name}.jsonl"));
        if plain.exists() {
            return lines(&plain);
        }
        lines(&self.folder.join(format!("{name}.jsonl.gz")))
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let bytes =
        std::fs::read(path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
    let text = if path.extension().is_some_and(|extension| extension == "gz") {
        let mut text = String::new();
        GzDecoder::new(&bytes[..])
            .read_to_string(&mut text)
            .unwrap();
        text
    } else {
        String::from_utf8(bytes).unwrap()
    };
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
