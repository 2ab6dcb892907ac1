//! The responses, byte by byte the same as kube-proxy's.

use dormouse_agent_services::ServiceKey;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};
use serde_json::Value;

/// Google's load balancers distribute traffic by this header.
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

/// The response of a Service's port: 200 if there is a local endpoint and the proxy is healthy, else 503.
pub(super) fn service(
    service: &ServiceKey,
    local_endpoints: usize,
    is_proxy_healthy: bool,
) -> Response<Full<Bytes>> {
    let text = |text: &str| Value::from(text).to_string();
    let (namespace, name) = (text(&service.namespace), text(&service.name));
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": {namespace},\n\t\t\"name\": {name}\n\t}},\n\
         \t\"localEndpoints\": {local_endpoints},\n\t\"serviceProxyHealthy\": {is_proxy_healthy}\n}}"
    );
    let mut response = json(local_endpoints > 0 && is_proxy_healthy, body);
    let weight = HeaderValue::from(local_endpoints);
    response.headers_mut().insert(WEIGHT, weight);
    response
}

/// The response of the proxy's own port; times are RFC 3339. `/livez` has no field for eligibility.
pub(super) fn proxy(
    is_healthy: bool,
    last_updated: jiff::Timestamp,
    now: jiff::Timestamp,
    node_eligible: Option<bool>,
) -> Response<Full<Bytes>> {
    let eligible = node_eligible.map(|it| format!(", \"nodeEligible\": {it}"));
    let eligible = eligible.unwrap_or_default();
    let body =
        format!("{{\"lastUpdated\": \"{last_updated}\",\"currentTime\": \"{now}\"{eligible}}}");
    json(is_healthy, body)
}

/// The response for an unknown path.
pub(super) fn nothing() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn json(is_good: bool, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    if !is_good {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
