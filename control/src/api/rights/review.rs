//! Reviews: requests with which users ask for rights, as `kubectl auth can-i` and `kubectl auth whoami`. Nothing is stored.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use dormouse_rbac::{Attributes, Resource, Target, User, node_of};
use http::StatusCode;
use k8s_openapi::api::{
    authentication::v1::UserInfo,
    authorization::v1::{
        FieldSelectorAttributes, NonResourceAttributes, NonResourceRule, ResourceAttributes,
        ResourceRule, SelfSubjectRulesReviewSpec, SubjectAccessReviewSpec,
        SubjectAccessReviewStatus, SubjectRulesReviewStatus,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::authorize;
use crate::api::{Api, Failure, fields, selector::Selector, write::request::WriteRequest};

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";

/// The kinds of reviews of a group, for discovery: plural name, whether it is in a namespace, kind.
pub(in crate::api) type Reviews = &'static [(&'static str, bool, &'static str)];
pub(in crate::api) const OF_AUTHORIZATION: Reviews = &[
    (
        "localsubjectaccessreviews",
        true,
        "LocalSubjectAccessReview",
    ),
    ("selfsubjectaccessreviews", false, "SelfSubjectAccessReview"),
    ("selfsubjectrulesreviews", false, "SelfSubjectRulesReview"),
    ("subjectaccessreviews", false, "SubjectAccessReview"),
];
pub(in crate::api) const OF_AUTHENTICATION: Reviews =
    &[("selfsubjectreviews", false, "SelfSubjectReview")];

pub(in crate::api) fn routes() -> Router<Arc<Api>> {
    let local = "namespaces/{namespace}/localsubjectaccessreviews";
    Router::new()
        .route(&format!("{AUTHORIZATION}/{local}"), post(of_subject))
        .route(
            &format!("{AUTHORIZATION}/subjectaccessreviews"),
            post(of_subject),
        )
        .route(
            &format!("{AUTHORIZATION}/selfsubjectaccessreviews"),
            post(of_self),
        )
        .route(
            &format!("{AUTHORIZATION}/selfsubjectrulesreviews"),
            post(of_rules),
        )
        .route(&format!("{AUTHENTICATION}/selfsubjectreviews"), post(who))
}

/// Whether the user of the request may do something.
async fn of_self(State(api): State<Arc<Api>>, request: WriteRequest) -> Result<Response, Failure> {
    let (review, spec) = review::<SubjectAccessReviewSpec>(&request)?;
    let status = access(&api, &request.user, &spec).await?;
    answered(review, &status)
}

/// Whether a user whom the request names may do something, in the namespace of the path if that has one.
async fn of_subject(
    State(api): State<Arc<Api>>,
    request: WriteRequest,
) -> Result<Response, Failure> {
    let (review, mut spec) = review::<SubjectAccessReviewSpec>(&request)?;
    let name = spec.user.take().unwrap_or_default();
    let groups = spec.groups.take().unwrap_or_default();
    if name.is_empty() && groups.is_empty() {
        return Err(invalid(
            &review,
            "spec.user: at least one of user or group must be specified",
        ));
    }
    let namespace = &request.key.namespace;
    if !namespace.is_empty() {
        let wanted = spec.resource_attributes.as_mut();
        let wanted = wanted.ok_or_else(|| {
            invalid(
                &review,
                "spec.resourceAttributes: a review in a namespace must be of a resource in it",
            )
        })?;
        let named = wanted.namespace.get_or_insert_default();
        if !named.is_empty() && named != namespace {
            let message = "spec.resourceAttributes.namespace: must match the namespace in the URL";
            return Err(invalid(&review, message));
        }
        named.clone_from(namespace);
    }
    let user = User { name, groups };
    let status = access(&api, &user, &spec).await?;
    answered(review, &status)
}

async fn access(
    api: &Api,
    user: &User,
    spec: &SubjectAccessReviewSpec,
) -> Result<SubjectAccessReviewStatus, Failure> {
    let attributes = match (&spec.resource_attributes, &spec.non_resource_attributes) {
        (Some(wanted), None) => of_resource(wanted)?,
        (None, Some(wanted)) => of_path(wanted),
        _ => {
            return Err(Failure::bad_request(
                "spec: exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ));
        }
    };
    let verdict = authorize(api, user, &attributes).await?;
    Ok(SubjectAccessReviewStatus {
        allowed: verdict.allowed,
        reason: Some(verdict.reason).filter(|reason| !reason.is_empty()),
        ..SubjectAccessReviewStatus::default()
    })
}

fn of_path(wanted: &NonResourceAttributes) -> Attributes {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    Attributes {
        verb: text(&wanted.verb),
        target: Target::Path(text(&wanted.path)),
    }
}

fn of_resource(wanted: &ResourceAttributes) -> Result<Attributes, Failure> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let selector = wanted.field_selector.as_ref();
    let resource = Resource {
        group: text(&wanted.group),
        version: text(&wanted.version),
        namespace: text(&wanted.namespace),
        resource: text(&wanted.resource),
        subresource: text(&wanted.subresource),
        name: text(&wanted.name),
        fields: selector.map_or_else(|| Ok(Vec::new()), exact_fields)?,
    };
    Ok(Attributes {
        verb: text(&wanted.verb),
        target: Target::Resource(resource),
    })
}

fn exact_fields(selector: &FieldSelectorAttributes) -> Result<Vec<(String, String)>, Failure> {
    let raw = selector.raw_selector.as_deref().unwrap_or_default();
    let mut fields = Selector::parse("", raw)?.exact_fields();
    for one in selector.requirements.iter().flatten() {
        if let ("In", Some([value])) = (one.operator.as_str(), one.values.as_deref()) {
            fields.push((one.key.clone(), value.clone()));
        }
    }
    Ok(fields)
}

/// The rules of the user of the request in a namespace.
async fn of_rules(State(api): State<Arc<Api>>, request: WriteRequest) -> Result<Response, Failure> {
    let (review, spec) = review::<SelfSubjectRulesReviewSpec>(&request)?;
    let namespace = spec.namespace.filter(|namespace| !namespace.is_empty());
    let namespace = namespace.ok_or_else(|| Failure::bad_request("no namespace on request"))?;
    let mut status = SubjectRulesReviewStatus::default();
    for rule in api.policy.read().rules_for(&request.user, &namespace) {
        let verbs = rule.verbs.clone();
        if rule.resources.is_some() {
            status.resource_rules.push(ResourceRule {
                verbs: verbs.clone(),
                api_groups: rule.api_groups.clone(),
                resources: rule.resources.clone(),
                resource_names: rule.resource_names.clone(),
            });
        }
        if rule.non_resource_urls.is_some() {
            let non_resource_urls = rule.non_resource_urls.clone();
            let rule = NonResourceRule {
                verbs,
                non_resource_urls,
            };
            status.non_resource_rules.push(rule);
        }
    }
    if node_of(&request.user).is_some() {
        status.incomplete = true;
        let error = "node authorizer does not support user rule resolution";
        status.evaluation_error = Some(error.to_owned());
    }
    answered(review, &status)
}

/// The user of the request.
async fn who(request: WriteRequest) -> Result<Response, Failure> {
    let review = request.json()?;
    let user = UserInfo {
        username: Some(request.user.name),
        groups: Some(request.user.groups),
        ..UserInfo::default()
    };
    answered(review, &json!({"userInfo": user}))
}

/// The review that a request has sent, and its specification.
fn review<S: DeserializeOwned>(request: &WriteRequest) -> Result<(Value, S), Failure> {
    let review = request.json()?;
    let spec = serde_json::from_value(review["spec"].clone());
    let spec = spec.map_err(|error| {
        Failure::bad_request(format!("cannot decode spec of the review: {error}"))
    })?;
    Ok((review, spec))
}

fn answered(mut review: Value, status: &impl Serialize) -> Result<Response, Failure> {
    if !review.is_object() {
        return Err(Failure::bad_request("the body is no review"));
    }
    review["status"] = json!(status);
    Ok((StatusCode::CREATED, Json(review)).into_response())
}

fn invalid(review: &Value, why: &str) -> Failure {
    Failure::bad_request(format!(
        "{} is invalid: {why}",
        fields::text(review, "kind")
    ))
}
