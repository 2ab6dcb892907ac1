//! The pins of a data path, under the names that an agent of the former schema gave them.

use std::fs;
use std::path::{Path, PathBuf};

/// Maps that have another name since the schema `v4`: the present name, the former one.
const RENAMED: [(&str, &str); 9] = [
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

/// Renames the pins of a node, whose folder is `bpffs`, while no agent runs: its programs go on as if an agent of the
/// schema `v4` had started them. They have a map `opening`, which that schema had not, and their connections are in it. Returns the
/// folder that a take-over has to remove.
pub fn rename_to_former_schema(bpffs: &Path) -> PathBuf {
    let former = bpffs.join("v4");
    fs::rename(bpffs.join("v6"), &former).unwrap();
    for (present, name) in RENAMED {
        fs::rename(former.join(present), former.join(name)).unwrap();
    }
    former
}
