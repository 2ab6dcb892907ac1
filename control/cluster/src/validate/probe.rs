//! Validation of probes.

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::container::supported;
use crate::FieldError;

/// Fields of a probe that nodes use.
pub(super) const SUPPORTED: [&str; 7] = [
    "failureThreshold",
    "httpGet",
    "initialDelaySeconds",
    "periodSeconds",
    "successThreshold",
    "tcpSocket",
    "timeoutSeconds",
];
const HTTP_GET: [&str; 3] = ["path", "port", "scheme"];
const TCP_SOCKET: [&str; 1] = ["port"];

/// Adds the errors of a container's probe at `field`, which is `probe` as JSON.
pub(super) fn check(
    field: &str,
    container: &Container,
    given: &Probe,
    probe: &Value,
    errors: &mut Vec<FieldError>,
) {
    target(field, container, given, errors);
    supported(
        &format!("{field}.httpGet"),
        &probe["httpGet"],
        &HTTP_GET,
        errors,
    );
    supported(
        &format!("{field}.tcpSocket"),
        &probe["tcpSocket"],
        &TCP_SOCKET,
        errors,
    );
    let scheme = &probe["httpGet"]["scheme"];
    if scheme.as_str().is_some_and(|scheme| scheme != "HTTP") {
        let message = format!("{scheme} is not supported: use HTTP");
        errors.push(FieldError::invalid(
            format!("{field}.httpGet.scheme"),
            message,
        ));
    }
    if probe["successThreshold"]
        .as_i64()
        .is_some_and(|times| times != 1)
    {
        let message = "is not supported: one success is enough";
        errors.push(FieldError::invalid(
            format!("{field}.successThreshold"),
            message,
        ));
    }
    for (name, min) in [
        ("failureThreshold", 1),
        ("periodSeconds", 1),
        ("timeoutSeconds", 1),
        ("initialDelaySeconds", 0),
    ] {
        if probe[name].as_i64().is_some_and(|given| given < min) {
            let message = format!("must be at least {min}");
            errors.push(FieldError::invalid(format!("{field}.{name}"), message));
        }
    }
}

/// What the probe does. The probe of a container that has none connects to the app's port.
fn target(field: &str, container: &Container, given: &Probe, errors: &mut Vec<FieldError>) {
    let has_other = given.exec.is_some() || given.grpc.is_some();
    if given.http_get.is_none() && given.tcp_socket.is_none() && !has_other {
        let message = "does nothing: set httpGet or tcpSocket, or remove it; without a readinessProbe, a pod is ready when its port \
                       accepts connections";
        errors.push(FieldError::required(field, message));
    }
    if given.http_get.is_some() && given.tcp_socket.is_some() {
        let message = "has httpGet and tcpSocket: a probe does one of them";
        errors.push(FieldError::invalid(field, message));
    }
    if let Some(get) = &given.http_get {
        let path = get.path.as_deref().unwrap_or("/");
        if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = "must begin with / and have no spaces or control characters: encode them, such as %20";
            errors.push(FieldError::invalid(
                format!("{field}.httpGet.path"),
                message,
            ));
        }
        errors.extend(port(&format!("{field}.httpGet.port"), container, &get.port));
    }
    if let Some(socket) = &given.tcp_socket {
        errors.extend(port(
            &format!("{field}.tcpSocket.port"),
            container,
            &socket.port,
        ));
    }
}

/// The error of a probe's port: a number, or the name of a port of the container.
fn port(field: &str, container: &Container, given: &IntOrString) -> Option<FieldError> {
    let message = match given {
        IntOrString::Int(1..=65_535) => return None,
        IntOrString::Int(_) => "use 1 to 65535".to_owned(),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            if ports.any(|port| port.name.as_ref() == Some(name)) {
                return None;
            }
            format!("`{name}` is not the name of a port in the container's ports")
        }
    };
    Some(FieldError::invalid(field, message))
}
