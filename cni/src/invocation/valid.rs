//! GC's list of valid attachments. Pure.

use serde_json::{Map, Value};

use crate::error::{CniError, code};

/// The keys of the list: the specification's, and one that older versions of libcni send.
const KEYS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// A missing list is refused, because it must never count as an empty one. `null` (Go's nil slice) is `None`.
pub(super) fn valid(conf: &Map<String, Value>) -> Result<Option<Vec<(String, String)>>, CniError> {
    let present = KEYS.map(|key| Some((key, conf.get(key)?)));
    let mut present = present.into_iter().flatten();
    let Some((key, value)) = present
        .clone()
        .find(|(_, v)| !v.is_null())
        .or(present.next())
    else {
        return Err(CniError::invalid_config(format!(
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
