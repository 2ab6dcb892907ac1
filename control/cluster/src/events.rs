//! Tells people what is wrong with an object, as Kubernetes Events: grouped, and gone after an hour.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::{
    api::core::v1::{Event, EventSeries, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
    jiff::Timestamp,
};

use crate::{Client, ClientError, Key, Object};

/// How long an event is kept after it happened last, in seconds; kube-apiserver's default.
const KEPT_S: i64 = 3_600;

/// A reference to `object`, as events carry it.
pub fn reference<K: Object>(object: &K) -> ObjectReference {
    let key = object.key();
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: Some(key.name),
        namespace: Some(key.namespace).filter(|namespace| !namespace.is_empty()),
        uid: object.meta().uid.clone(),
        ..ObjectReference::default()
    }
}

/// Records that something happened to `about`. The same reason for the same object is one event whose
/// count grows and whose message is the last one's. `type_` is `Normal` or `Warning`.
pub async fn record(
    client: &Client,
    about: &ObjectReference,
    type_: &str,
    reason: &str,
    message: &str,
) -> Result<(), ClientError> {
    let key = key_of(about, type_, reason);
    let before: Option<Event> = client.get(&key).await?;
    let event = happened(
        before,
        about,
        (type_, reason, message),
        Timestamp::now(),
        key,
    );
    client.put_leased(&event, KEPT_S).await
}

/// Events about cluster-wide objects live in the default namespace, as in Kubernetes.
fn key_of(about: &ObjectReference, type_: &str, reason: &str) -> Key {
    let mut hasher = DefaultHasher::new();
    (
        &about.kind,
        &about.namespace,
        &about.name,
        &about.uid,
        type_,
        reason,
    )
        .hash(&mut hasher);
    let name = format!(
        "{}.{:016x}",
        about.name.as_deref().unwrap_or("unknown"),
        hasher.finish()
    );
    Key::new(about.namespace.as_deref().unwrap_or("default"), name)
}

/// The event after it happened (once more).
fn happened(
    before: Option<Event>,
    about: &ObjectReference,
    (type_, reason, message): (&str, &str, &str),
    now: Timestamp,
    key: Key,
) -> Event {
    let mut event = before.unwrap_or_else(|| Event {
        metadata: ObjectMeta {
            name: Some(key.name),
            namespace: Some(key.namespace),
            creation_timestamp: Some(Time(now)),
            ..ObjectMeta::default()
        },
        first_timestamp: Some(Time(now)),
        involved_object: about.clone(),
        type_: Some(type_.to_owned()),
        reason: Some(reason.to_owned()),
        source: Some(EventSource {
            component: Some("dormouse".to_owned()),
            host: None,
        }),
        ..Event::default()
    });
    let count = event.count.unwrap_or(0).saturating_add(1);
    event.count = Some(count);
    event.last_timestamp = Some(Time(now));
    // Timestamps have whole seconds; this one orders what happened within one.
    event.series = Some(EventSeries {
        count: Some(count),
        last_observed_time: Some(MicroTime(now)),
    });
    event.message = Some(message.to_owned());
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_reason_is_one_event_whose_count_grows() {
        let about = ObjectReference {
            name: Some("web".into()),
            namespace: Some("shop".into()),
            ..Default::default()
        };
        let key = key_of(&about, "Warning", "FailedScheduling");
        assert_eq!(key, key_of(&about, "Warning", "FailedScheduling"));
        assert_ne!(key, key_of(&about, "Warning", "BackOff"));
        let now = Timestamp::UNIX_EPOCH;
        let first = happened(
            None,
            &about,
            ("Warning", "FailedScheduling", "no node"),
            now,
            key.clone(),
        );
        let second = happened(
            Some(first),
            &about,
            ("Warning", "FailedScheduling", "still none"),
            now,
            key,
        );
        assert_eq!(
            (second.count, second.message.as_deref()),
            (Some(2), Some("still none"))
        );
    }
}
