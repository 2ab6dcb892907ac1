//! Kubernetes Events about objects: repeated events are aggregated, and expire after an hour.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::{
    api::core::v1::{Event, EventSeries, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
    jiff::Timestamp,
};

use crate::{Client, ClientError, Key, Object};

/// TTL of an event after its last occurrence, seconds; the default of kube-apiserver's `--event-ttl`.
const TTL_S: i64 = 3_600;

/// Type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// Information only.
    Normal,
    /// A problem.
    Warning,
}

impl EventType {
    /// The value of the field `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One occurrence of an event.
#[derive(Debug, Clone, Copy)]
pub struct Occurrence<'a> {
    /// The event's type.
    pub type_: EventType,
    /// The reason in CamelCase, such as `FailedScheduling`.
    pub reason: &'a str,
    /// The human-readable message.
    pub message: &'a str,
}

/// The `involvedObject` of events about `object`.
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

/// Records an event about an object. Warnings of one reason about one object are one event, with a count and the last message;
/// of normal events, which are a history, only those with the same message are.
pub async fn record(
    client: &Client,
    about: &ObjectReference,
    occurrence: &Occurrence<'_>,
) -> Result<(), ClientError> {
    let previous: Option<Event> = client.get(&key_of(about, occurrence)).await?;
    let event = aggregated(previous, about, occurrence, Timestamp::now());
    client.put_leased(&event, TTL_S).await
}

/// The event's key. As in Kubernetes, events about cluster-scoped objects are in the default namespace.
fn key_of(about: &ObjectReference, occurrence: &Occurrence<'_>) -> Key {
    let mut hasher = DefaultHasher::new();
    let is_history = occurrence.type_ == EventType::Normal;
    (
        &about.kind,
        &about.namespace,
        &about.name,
        &about.uid,
        occurrence.type_.as_str(),
        occurrence.reason,
        Some(occurrence.message).filter(|_| is_history),
    )
        .hash(&mut hasher);
    let name = format!(
        "{}.{:016x}",
        about.name.as_deref().unwrap_or("unknown"),
        hasher.finish()
    );
    Key::new(about.namespace.as_deref().unwrap_or("default"), name)
}

/// The event after a further occurrence.
fn aggregated(
    previous: Option<Event>,
    about: &ObjectReference,
    occurrence: &Occurrence<'_>,
    now: Timestamp,
) -> Event {
    let key = key_of(about, occurrence);
    let mut event = previous.unwrap_or_else(|| Event {
        metadata: ObjectMeta {
            name: Some(key.name),
            namespace: Some(key.namespace),
            creation_timestamp: Some(Time(now)),
            ..ObjectMeta::default()
        },
        first_timestamp: Some(Time(now)),
        involved_object: about.clone(),
        type_: Some(occurrence.type_.as_str().to_owned()),
        reason: Some(occurrence.reason.to_owned()),
        source: Some(EventSource {
            component: Some("dormouse".to_owned()),
            host: None,
        }),
        ..Event::default()
    });
    let count = event.count.unwrap_or(0).saturating_add(1);
    event.count = Some(count);
    event.last_timestamp = Some(Time(now));
    // The other timestamps have whole seconds; this one orders events within a second.
    event.series = Some(EventSeries {
        count: Some(count),
        last_observed_time: Some(MicroTime(now)),
    });
    event.message = Some(occurrence.message.to_owned());
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_of_a_rollout_are_events_of_their_own() {
        let about = ObjectReference::default();
        let key = |message| {
            let occurrence = Occurrence {
                type_: EventType::Normal,
                reason: "TrafficSplit",
                message,
            };
            key_of(&about, &occurrence)
        };
        assert_ne!(key("90% web-1, 10% web-2"), key("80% web-1, 20% web-2"));
        assert_eq!(key("100% latest"), key("100% latest"));
    }

    #[test]
    fn occurrences_with_the_same_reason_are_one_event_with_a_count() {
        let about = ObjectReference {
            name: Some("web".into()),
            namespace: Some("shop".into()),
            ..Default::default()
        };
        let warning = |reason, message| Occurrence {
            type_: EventType::Warning,
            reason,
            message,
        };
        let no_node = warning("FailedScheduling", "no node");
        let still_none = warning("FailedScheduling", "still none");
        assert_eq!(key_of(&about, &no_node), key_of(&about, &still_none));
        let back_off = warning("BackOff", "no node");
        assert_ne!(key_of(&about, &no_node), key_of(&about, &back_off));
        let now = Timestamp::UNIX_EPOCH;
        let first = aggregated(None, &about, &no_node, now);
        let second = aggregated(Some(first), &about, &still_none, now);
        assert_eq!(
            (second.count, second.message.as_deref()),
            (Some(2), Some("still none"))
        );
    }
}
