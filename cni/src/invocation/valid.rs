//! What GC must keep. Pure.

use serde_json::{Map, Value};

use super::config;
use crate::error::{CniError, code};

/// The keys under which a runtime lists it: the specification's, and one that libcni once sent.
const KEYS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// An absent list is refused, as it must never be read as an empty one; Go's nil slice arrives as `null`.
pub(super) fn valid(conf: &Map<String, Value>) -> Result<Option<Vec<(String, String)>>, CniError> {
    let there = KEYS.map(|key| Some((key, conf.get(key)?)));
    let mut there = there.into_iter().flatten();
    let Some((key, value)) = there.clone().find(|(_, v)| !v.is_null()).or(there.next()) else {
        return Err(config(format!(
            "GC needs `{}`; nothing was removed",
            KEYS[0]
        )));
    };
    if value.is_null() {
        return Ok(None);
    }
    let text = |item: &Value, name: &str| item.get(name)?.as_str().map(str::to_owned);
    let pair = |item: &Value| Some((text(item, "containerID")?, text(item, "ifname")?));
    let list = value
        .as_array()
        .and_then(|list| list.iter().map(pair).collect());
    list.map(Some).ok_or_else(|| {
        let form = "a list of {\"containerID\": …, \"ifname\": …}";
        CniError::new(
            code::DECODE,
            format!("`{key}` is not {form}; nothing was removed"),
        )
    })
}
