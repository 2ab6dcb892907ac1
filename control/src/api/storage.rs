//! Reads of objects from the store, and their JSON.

use dormouse_cluster::Key;
use serde_json::Value;

use super::{Api, Failure, Kind, selector::Selector};

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

/// An object as JSON.
pub(super) fn to_json<K: Kind>(object: &K) -> Result<Value, Failure> {
    serde_json::to_value(object)
        .map_err(|error| Failure::bad_request(format!("cannot encode the object as JSON: {error}")))
}
