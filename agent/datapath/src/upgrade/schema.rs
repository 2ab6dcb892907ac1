//! The maps of a data path that is taken over, by their present names: of this schema, or of one before, which differs in the
//! names of pins, or has not all of them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use aya::maps::{Map, MapData};

use crate::SCHEMA;
use crate::error::DatapathError;

/// The schemas before [`SCHEMA`]: the same maps, byte for byte, some under other names; without the map `opening`.
const FORMERS: &[(&str, Names)] = &[("v5", &[]), ("v4", RENAMED)];

/// Present and former names of maps, where they differ.
type Names = &'static [(&'static str, &'static str)];

/// The maps that were renamed since `v4`.
const RENAMED: &[(&str, &str)] = &[
    ("affinity", "sticky"),
    ("backend_set", "vec"),
    ("expired_counts", "expired"),
    ("flow_filter", "flowing"),
    ("frontend", "foreign"),
    ("frontend_filter", "filter"),
    ("reverse_peer", "peer"),
    ("slot_option", "extra"),
    ("source_range", "admitted"),
];

/// A folder of pins whose maps can be read.
#[derive(Clone, Debug)]
pub(super) struct Maps {
    folder: PathBuf,
    renamed: Names,
}

impl Maps {
    /// The maps in a folder of this agent's schema.
    pub(super) fn current(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            renamed: &[],
        }
    }

    /// The maps in a folder, by the schema that its name begins with; the size of a table may follow. None: of an unknown
    /// schema.
    pub(super) fn of(folder: &Path) -> Option<Self> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let is_of = |schema: &str| {
            let rest = name.strip_prefix(schema);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let schemas = [&[(SCHEMA, &[] as Names)][..], FORMERS].concat();
        let (_, renamed) = schemas.into_iter().find(|(schema, _)| is_of(schema))?;
        Some(Self {
            renamed,
            ..Self::current(folder)
        })
    }

    /// Where they are pinned.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The present name of the map with this pin.
    pub(super) fn name_of<'a>(&self, pin: &'a OsStr) -> &'a OsStr {
        let renamed = self.renamed.iter().find(|(_, former)| pin == *former);
        renamed.map_or(pin, |(present, _)| OsStr::new(present))
    }

    /// Whether there is a map of this present name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.pin(name).exists()
    }

    /// The pin of a map by its present name.
    fn pin(&self, name: &str) -> PathBuf {
        let renamed = self.renamed.iter().find(|(present, _)| *present == name);
        self.folder.join(renamed.map_or(name, |(_, former)| former))
    }

    /// Opens a map by its present name.
    pub(super) fn open(&self, name: &'static str) -> Result<MapData, DatapathError> {
        MapData::from_pin(self.pin(name)).map_err(DatapathError::map("take over", name))
    }

    /// Opens a map of this type.
    pub(super) fn typed<T>(&self, name: &'static str) -> Result<T, DatapathError>
    where
        T: TryFrom<Map>,
        T::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let map = Map::from_map_data(self.open(name)?);
        let map = map.map_err(DatapathError::map("take over", name))?;
        T::try_from(map).map_err(DatapathError::map("take over", name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Option<Maps> {
        Maps::of(&Path::new("/sys/fs/bpf/dormouse/node").join(name))
    }

    #[test]
    fn a_folder_is_read_by_the_schema_in_its_name() {
        for current in [SCHEMA.to_owned(), format!("{SCHEMA}-65536")] {
            assert!(of(&current).is_some_and(|maps| maps.renamed.is_empty()));
        }
        for (schema, renamed) in FORMERS {
            for former in [(*schema).to_owned(), format!("{schema}-65536")] {
                assert!(of(&former).is_some_and(|maps| maps.renamed == *renamed));
            }
        }
        for unknown in ["v3", "v40", "v50-1", "explain-1-2"] {
            assert!(of(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn pins_of_the_former_schema_get_their_present_names() {
        let (former, current) = (of("v4").unwrap(), of(SCHEMA).unwrap());
        assert_eq!(former.name_of("foreign".as_ref()), "frontend");
        assert_eq!(former.name_of("flow".as_ref()), "flow");
        assert_eq!(current.name_of("frontend".as_ref()), "frontend");
    }
}
