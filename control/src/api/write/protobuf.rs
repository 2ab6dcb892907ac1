//! What typed clients of Kubernetes send as protobuf: `DeleteOptions`, also in an `Eviction`, the objects of `kubectl create namespace,
//! role, rolebinding, clusterrole, clusterrolebinding`, and the reviews of `kubectl auth` (k8s.io/apimachinery, k8s.io/api/policy/v1 and
//! k8s.io/api/core/v1, generated.proto).

mod rights;

use std::collections::BTreeMap;

use prost::Message;
use serde::Serialize;
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

/// A Namespace, or a SelfSubjectReview: only the metadata are of interest.
#[derive(Clone, PartialEq, Message, Serialize)]
struct Namespace {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

/// The metadata that a client gives.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
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

/// A new object as JSON; none: it is of a kind that typed clients of control do not create.
pub(super) fn object(body: &[u8]) -> Result<Option<Value>, Failure> {
    let Ok(envelope) = envelope(body) else {
        return Ok(None);
    };
    let kind = envelope.kind.unwrap_or_default();
    let as_json = match (kind.api_version.as_str(), kind.kind.as_str()) {
        ("v1", "Namespace") | ("authentication.k8s.io/v1", "SelfSubjectReview") => {
            as_json::<Namespace>
        }
        ("rbac.authorization.k8s.io/v1", "Role" | "ClusterRole") => as_json::<rights::Role>,
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => {
            as_json::<rights::Binding>
        }
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => as_json::<rights::RulesReview>,
        ("authorization.k8s.io/v1", _) => as_json::<rights::AccessReview>,
        _ => return Ok(None),
    };
    let mut object = as_json(&envelope.raw).map_err(|why| malformed(&why))?;
    object["apiVersion"] = kind.api_version.into();
    object["kind"] = kind.kind.into();
    Ok(Some(object))
}

/// A message as JSON, without the fields that are not set.
fn as_json<M: Message + Default + Serialize>(raw: &[u8]) -> Result<Value, String> {
    let message = M::decode(raw).map_err(|error| error.to_string())?;
    let mut json = serde_json::to_value(message).map_err(|error| error.to_string())?;
    remove_unset(&mut json);
    Ok(json)
}

/// Removes the fields that are null or empty, but no items of lists: the empty one is the core group.
fn remove_unset(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(remove_unset);
            fields.retain(|_, value| {
                !(value.is_null() || *value == json!("") || *value == json!([]))
            });
        }
        Value::Array(items) => items.iter_mut().for_each(remove_unset),
        _ => {}
    }
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

    /// Bodies that kubectl 1.36 has sent.
    #[test]
    fn the_bodies_of_kubectl_are_decoded() {
        let meta = b"\n\x10\n\0\x12\0\x1a\0\"\0*\x002\x008\0B\0";
        let review = [
            b"k8s\0\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\x12<\n\x10".as_slice(),
            &meta[2..],
            b"\x12\x1e\n\x1c\n\x07default\x12\x03get\x1a\0\"\0*\x04pods2\0:\0\x1a\x08\x08\0\x12\0\x1a\0 \0\x1a\0\"\0",
        ];
        let want = json!({"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}});
        let review = object(&review.concat()).unwrap().unwrap();
        assert_eq!(
            (&review["spec"], &review["kind"]),
            (&want, &json!("SelfSubjectAccessReview"))
        );
        let role = b"k8s\0\n$\n\x1crbac.authorization.k8s.io/v1\x12\x04Role\x12\"\n\x11\n\x01r\x12\0\x1a\0\"\0*\x002\x008\0B\0\x12\r\n\x03get\x12\0\x1a\x04pods\x1a\0\"\0";
        let role = object(role).unwrap().unwrap();
        let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        assert_eq!(
            (&role["rules"], &role["metadata"]["name"]),
            (&rules, &json!("r"))
        );
        let binding = b"k8s\0\n+\n\x1crbac.authorization.k8s.io/v1\x12\x0bRoleBinding\x12k\n\x11\n\x01x\x12\0\x1a\0\"\0*\x002\x008\0B\0\x12&\n\x04User\x12\x19rbac.authorization.k8s.io\x1a\x01a\"\0\x1a.\n\x19rbac.authorization.k8s.io\x12\x0bClusterRole\x1a\x04view\x1a\0\"\0";
        let binding = object(binding).unwrap().unwrap();
        let group = "rbac.authorization.k8s.io";
        let (role, ann) = (
            json!({"apiGroup": group, "kind": "ClusterRole", "name": "view"}),
            json!([{"apiGroup": group, "kind": "User", "name": "a"}]),
        );
        assert_eq!((&binding["roleRef"], &binding["subjects"]), (&role, &ann));
    }
}
