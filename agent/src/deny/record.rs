//! The prefixes that `dormouse-agent deny add` has added, and their file in the state folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use dormouse_agent_services::Prefix;
use dormouse_files::{Durability, write_whole};

/// Name of the file, in the node's state folder.
pub const FILE: &str = "deny.json";
/// Its permissions.
const FILE_MODE: u32 = 0o600;

/// The prefixes with their ends, in seconds since 1970; none: without end.
pub type Record = BTreeMap<Prefix, Option<u64>>;

/// Reads the record; empty, if there is no file.
pub fn load(state_dir: &Path) -> io::Result<Record> {
    let path = state_dir.join(FILE);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Record::new()),
        read => read?,
    };
    let texts: BTreeMap<String, Option<u64>> = serde_json::from_slice(&bytes).map_err(|error| {
        let text = format!("{}: {error}; repair or remove it", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })?;
    let entries = texts.into_iter().map(|(text, until_s)| {
        let prefix = Prefix::parse(&text).ok_or_else(|| {
            let text = format!("{}: {text:?} is no prefix", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        Ok((prefix, until_s))
    });
    entries.collect()
}

/// Writes the record.
pub fn save(state_dir: &Path, record: &Record) -> io::Result<()> {
    let texts: BTreeMap<String, Option<u64>> = record
        .iter()
        .map(|(prefix, until_s)| (prefix.to_string(), *until_s))
        .collect();
    let bytes = serde_json::to_vec(&texts)?;
    write_whole(
        &state_dir.join(FILE),
        &bytes,
        FILE_MODE,
        Durability::PowerFailure,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(load(folder.path()).unwrap(), Record::new());
        let prefix = |text| Prefix::parse(text).unwrap();
        let record = Record::from([
            (prefix("2001:db8:7::/64"), None),
            (prefix("192.0.2.7/32"), Some(1_800_000_000)),
        ]);
        save(folder.path(), &record).unwrap();
        assert_eq!(load(folder.path()).unwrap(), record);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error_with_the_files_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), r#"{"nonsense": null}"#).unwrap();
        let error = load(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("deny.json") && error.contains("nonsense"),
            "{error}"
        );
        fs::write(folder.path().join(FILE), "{").unwrap();
        let error = load(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("deny.json") && error.contains("remove it"),
            "{error}"
        );
    }
}
