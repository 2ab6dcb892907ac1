//! Reads of objects from the store, and their JSON.

use dormouse_cluster::Key;
use dormouse_cluster::client::{KeyRange, decode, prefix_of};
use serde_json::Value;

use super::{Api, Failure, Kind, position::Position, selector::Selector};

/// The object with this key, if it exists.
pub(super) async fn find<K: Kind>(api: &Api, key: &Key) -> Result<Option<K>, Failure> {
    api.client
        .get(key)
        .await
        .map_err(|error| Failure::of_client::<K>(&error, key))
}

/// The selected objects of a kind as JSON, and the revision at which they were read.
pub(super) async fn list<K: Kind>(
    api: &Api,
    namespace: Option<&str>,
    selector: &Selector,
) -> Result<(Vec<Value>, u64), Failure> {
    let list = api.client.list::<K>(namespace).await;
    let list = list.map_err(|error| Failure::of_client::<K>(&error, &Key::cluster_scoped("")))?;
    let values = list
        .items
        .iter()
        .map(to_json)
        .collect::<Result<Vec<_>, _>>()?;
    Ok((
        values
            .into_iter()
            .filter(|value| selector.matches(value))
            .collect(),
        list.revision,
    ))
}

/// A list, or a page of one.
pub(super) struct Page {
    /// The selected objects.
    pub(super) objects: Vec<Value>,
    /// The revision at which they were read.
    pub(super) revision: u64,
    /// The token of the next page; none: it is the last.
    pub(super) next: Option<String>,
}

/// The selected objects of a kind from a position on, at most `limit`.
pub(super) async fn page<K: Kind>(
    api: &Api,
    namespace: Option<&str>,
    selector: &Selector,
    (position, limit): (&Position, Option<usize>),
) -> Result<Page, Failure> {
    let failed = |error| Failure::of_client::<K>(&error, &Key::cluster_scoped(""));
    let prefix = prefix_of::<K>(namespace);
    let mut range = match selector.name() {
        Some(name) if namespace.is_some() || !K::NAMESPACED => {
            KeyRange::of_key(&format!("{prefix}{name}"))
        }
        _ => KeyRange::of_prefix(&prefix),
    };
    if let Position::After(_, key) = position {
        range = range.after(&format!("{}{key}", K::PREFIX));
    }
    let mut page = Page {
        objects: Vec::new(),
        revision: position.reads_at(),
        next: None,
    };
    let mut rest = Some(range);
    while let Some(range) = rest {
        let read = api
            .client
            .page(&range, page.revision)
            .await
            .map_err(failed)?;
        page.revision = read.revision;
        rest = read.rest;
        let mut kvs = read.kvs.iter().peekable();
        while let Some(kv) = kvs.next() {
            // What was written past the API and cannot be decoded is left out.
            let Ok(object) = decode::<K>(kv) else {
                continue;
            };
            let value = to_json(&object)?;
            page.objects
                .extend(Some(value).filter(|value| selector.matches(value)));
            let is_full = limit.is_some_and(|limit| page.objects.len() >= limit);
            if is_full && (kvs.peek().is_some() || rest.is_some()) {
                let key = String::from_utf8_lossy(kv.key());
                let key = key.strip_prefix(K::PREFIX).unwrap_or_default();
                page.next = Some(Position::token(page.revision, key));
            }
            if is_full {
                position.check(page.revision)?;
                return Ok(page);
            }
        }
    }
    position.check(page.revision)?;
    Ok(page)
}

/// An object as JSON.
pub(super) fn to_json<K: Kind>(object: &K) -> Result<Value, Failure> {
    serde_json::to_value(object)
        .map_err(|error| Failure::bad_request(format!("cannot encode the object as JSON: {error}")))
}
