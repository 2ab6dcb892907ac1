//! What typed clients of Kubernetes send as protobuf: `DeleteOptions`, also in an `Eviction`, and the Namespace of `kubectl create
//! namespace` (k8s.io/apimachinery, k8s.io/api/policy/v1 and k8s.io/api/core/v1, generated.proto).

use std::collections::BTreeMap;

use prost::Message;
use serde_json::{Value, json};

use super::{DeleteOptions, Preconditions};
use crate::api::Failure;

/// The begin of every body of this form.
const MAGIC: &[u8] = b"k8s\0";

#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    kind: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct Namespace {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

/// The metadata that a client gives.
#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    generate_name: String,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Options {
    #[prost(message, optional, tag = "2")]
    preconditions: Option<Conditions>,
    #[prost(string, repeated, tag = "5")]
    dry_run: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Conditions {
    #[prost(string, optional, tag = "1")]
    uid: Option<String>,
    #[prost(string, optional, tag = "2")]
    resource_version: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Eviction {
    #[prost(message, optional, tag = "2")]
    delete_options: Option<Options>,
}

/// The options of a delete request.
pub(super) fn delete_options(body: &[u8]) -> Result<DeleteOptions, Failure> {
    decoded::<Options>(body).map(of)
}

/// The options of an eviction.
pub(super) fn eviction(body: &[u8]) -> Result<DeleteOptions, Failure> {
    let eviction = decoded::<Eviction>(body)?;
    Ok(of(eviction.delete_options.unwrap_or_default()))
}

/// A new object as JSON; none: it is no Namespace, and only that has so few fields.
pub(super) fn object(body: &[u8]) -> Result<Option<Value>, Failure> {
    let Ok(envelope) = envelope(body) else {
        return Ok(None);
    };
    let kind = envelope.kind.unwrap_or_default();
    if (kind.api_version.as_str(), kind.kind.as_str()) != ("v1", "Namespace") {
        return Ok(None);
    }
    let namespace = Namespace::decode(envelope.raw.as_slice());
    let namespace = namespace.map_err(|error| malformed(&error.to_string()))?;
    let given = namespace.metadata.unwrap_or_default();
    let mut metadata = json!({"labels": given.labels, "annotations": given.annotations});
    for (field, value) in [("name", given.name), ("generateName", given.generate_name)] {
        if !value.is_empty() {
            metadata[field] = value.into();
        }
    }
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    Ok(Some(object))
}

fn of(options: Options) -> DeleteOptions {
    let preconditions = options.preconditions.unwrap_or_default();
    DeleteOptions {
        preconditions: Preconditions {
            uid: preconditions.uid,
            resource_version: preconditions.resource_version,
        },
        dry_run: options.dry_run,
    }
}

fn decoded<M: Message + Default>(body: &[u8]) -> Result<M, Failure> {
    let message = envelope(body)
        .and_then(|envelope| M::decode(envelope.raw.as_slice()).map_err(|error| error.to_string()));
    message.map_err(|why| malformed(&why))
}

fn envelope(body: &[u8]) -> Result<Unknown, String> {
    let message = body
        .strip_prefix(MAGIC)
        .ok_or("it does not begin with k8s")?;
    Unknown::decode(message).map_err(|error| error.to_string())
}

fn malformed(why: &str) -> Failure {
    Failure::bad_request(format!("cannot decode the protobuf body: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(message: &impl Message) -> Vec<u8> {
        of_kind("", message)
    }

    fn of_kind(kind: &str, message: &impl Message) -> Vec<u8> {
        let envelope = Unknown {
            kind: Some(TypeMeta {
                api_version: "v1".into(),
                kind: kind.into(),
            }),
            raw: message.encode_to_vec(),
        };
        [MAGIC, &envelope.encode_to_vec()].concat()
    }

    #[test]
    fn options_are_decoded_alone_and_in_an_eviction() {
        let options = Options {
            preconditions: Some(Conditions {
                uid: Some("u1".into()),
                resource_version: None,
            }),
            dry_run: vec!["All".into()],
        };
        let want = DeleteOptions {
            preconditions: Preconditions {
                uid: Some("u1".into()),
                resource_version: None,
            },
            dry_run: vec!["All".into()],
        };
        assert_eq!(delete_options(&body(&options)).unwrap(), want);
        let delete_options = Some(options);
        assert_eq!(eviction(&body(&Eviction { delete_options })).unwrap(), want);
        assert!(super::delete_options(b"{}").is_err());
        assert!(super::delete_options(b"k8s\0\xff").is_err());
    }

    #[test]
    fn a_namespace_is_decoded_and_no_other_object() {
        let namespace = Namespace {
            metadata: Some(ObjectMeta {
                name: "shop".into(),
                labels: [("team".into(), "a".into())].into(),
                ..ObjectMeta::default()
            }),
        };
        let want = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "shop", "labels": {"team": "a"}, "annotations": {}},
        });
        assert_eq!(
            object(&of_kind("Namespace", &namespace)).unwrap(),
            Some(want)
        );
        assert_eq!(object(&of_kind("Pod", &namespace)).unwrap(), None);
        assert_eq!(object(b"{}").unwrap(), None);
    }
}
