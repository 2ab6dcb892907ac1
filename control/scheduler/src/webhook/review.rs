//! An AdmissionReview, and its answer, which allows. Pure.

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::json;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// A review that was read.
#[derive(Debug)]
pub(super) struct Review {
    /// The body of the answer.
    pub(super) answer: Vec<u8>,
    /// The pod, if one is being created.
    pub(super) pod: Option<Pod>,
}

/// A body that is no review of this version.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    /// It is not JSON, or a field has another type.
    #[error("the body is no review: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the body is {found:?}: only {KIND} is read")]
    Kind { found: String },
    #[error(
        "the review is {found:?}: only {API_VERSION} is read, name it in admissionReviewVersions"
    )]
    Version { found: String },
    #[error("the review has no request")]
    NoRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(default)]
    resource: Resource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    operation: String,
    dry_run: Option<bool>,
}

#[derive(Deserialize, Default)]
struct Resource {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default, rename = "resource")]
    plural: String,
}

/// The object, which is read only if it is a pod's.
#[derive(Deserialize)]
struct Created {
    request: CreatedObject,
}

#[derive(Deserialize)]
struct CreatedObject {
    object: Pod,
}

/// Reads a review.
pub(super) fn review(body: &[u8]) -> Result<Review, ReviewError> {
    let envelope: Envelope = serde_json::from_slice(body)?;
    if envelope.kind != KIND {
        let found = envelope.kind;
        return Err(ReviewError::Kind { found });
    }
    if envelope.api_version != API_VERSION {
        let found = envelope.api_version;
        return Err(ReviewError::Version { found });
    }
    let request = envelope.request.ok_or(ReviewError::NoRequest)?;
    let response = json!({"uid": request.uid, "allowed": true});
    let answer = json!({"apiVersion": API_VERSION, "kind": KIND, "response": response});
    let pod = if request.creates_a_pod() {
        let mut pod = serde_json::from_slice::<Created>(body)?.request.object;
        pod.metadata.namespace.get_or_insert(request.namespace);
        Some(pod)
    } else {
        None
    };
    Ok(Review {
        answer: answer.to_string().into_bytes(),
        pod,
    })
}

impl Request {
    fn creates_a_pod(&self) -> bool {
        let Resource {
            group,
            version,
            plural,
        } = &self.resource;
        let resource = (group.as_str(), version.as_str(), plural.as_str());
        let is_dry = self.dry_run == Some(true);
        resource == ("", "v1", "pods")
            && self.sub_resource.is_empty()
            && self.operation == "CREATE"
            && !is_dry
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn body(more: &Value) -> Value {
        let mut request = json!({"uid": "r1", "operation": "CREATE", "namespace": "shop",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "u"}, "spec": {"containers": []}}});
        for (field, value) in more.as_object().unwrap() {
            request[field] = value.clone();
        }
        json!({"apiVersion": API_VERSION, "kind": KIND, "request": request})
    }

    fn read(body: &Value) -> Result<Review, String> {
        review(&serde_json::to_vec(body).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_created_pod_is_read_and_allowed() {
        let reviewed = read(&body(&json!({"dryRun": false}))).unwrap();
        let answer: Value = serde_json::from_slice(&reviewed.answer).unwrap();
        let expected = json!({"apiVersion": API_VERSION, "kind": KIND, "response": {"uid": "r1", "allowed": true}});
        assert_eq!(answer, expected);
        let meta = reviewed.pod.unwrap().metadata;
        let of = [meta.namespace, meta.name, meta.uid].map(Option::unwrap);
        assert_eq!(of, ["shop", "a", "u"]);
    }

    #[test]
    fn what_creates_no_pod_is_allowed_and_announces_none() {
        let other = json!({"group": "", "version": "v1", "resource": "services"});
        for more in [
            json!({"dryRun": true}),
            json!({"operation": "UPDATE"}),
            json!({"operation": "DELETE", "object": null}),
            json!({"subResource": "eviction", "object": {"kind": "Eviction"}}),
            json!({"resource": other, "object": {"kind": "Service"}}),
        ] {
            let reviewed = read(&body(&more)).unwrap();
            assert!(reviewed.pod.is_none(), "{more}");
            assert!(reviewed.answer.windows(4).any(|part| part == b"true"));
        }
    }

    #[test]
    fn a_body_that_is_no_review_has_an_error_that_names_the_reason() {
        let changed = |field: &str, value: Value| {
            let mut body = body(&json!({}));
            body[field] = value;
            read(&body).unwrap_err()
        };
        assert!(changed("kind", json!("Pod")).starts_with("the body is \"Pod\""));
        assert!(changed("apiVersion", json!("admission.k8s.io/v1beta1")).contains("v1beta1"));
        assert_eq!(changed("request", Value::Null), "the review has no request");
        assert!(changed("request", json!({})).contains("uid"));
        assert!(review(b"{").unwrap_err().to_string().contains("no review"));
        let strange = read(&body(
            &json!({"object": {"apiVersion": "v1", "kind": "Pod", "metadata": 7}}),
        ));
        assert!(strange.unwrap_err().contains("no review"));
    }
}
