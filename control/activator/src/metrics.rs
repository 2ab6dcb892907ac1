//! The activator's metrics. No label contains an app, so the number of series does not grow with the apps.

use http::{Method, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::fmt::{Error, Write};
use std::time::Duration;

use crate::park::LimitReached;

/// Bounds in seconds: those of OpenTelemetry's `http.server.request.duration`.
const REQUEST_BUCKETS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];
/// Bounds in seconds: from a short wait for a slot to a pod that starts in a minute.
const PARK_BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0,
];

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) attached: Gauge,
    pub(crate) parked: Gauge,
    pub(crate) parked_bytes: Gauge,
    pub(crate) park_duration: Histogram,
    refused: Family<RefusedLabels, Counter>,
    duration: Family<RequestLabels, Histogram>,
}

/// The reason of a refusal before any backend was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(
    non_camel_case_types,
    reason = "the encoder writes the variant's name as the label's value"
)]
pub(crate) enum Reason {
    bytes,
    count,
    age,
    failing,
    connections,
}

impl From<LimitReached> for Reason {
    fn from(limit: LimitReached) -> Self {
        match limit {
            LimitReached::Bytes => Self::bytes,
            LimitReached::Count => Self::count,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    http_request_method: KnownMethod,
    http_response_status_code: KnownStatus,
}

/// A method of RFC 9110 or PATCH; all others are `_OTHER`, because clients can send any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct KnownMethod(&'static str);

impl KnownMethod {
    fn of(method: &Method) -> Self {
        const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
        let known = KNOWN.iter().find(|known| **known == method.as_str());
        Self(known.unwrap_or(&"_OTHER"))
    }
}

impl EncodeLabelValue for KnownMethod {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), Error> {
        encoder.write_str(self.0)
    }
}

/// A usual status, or the x00 of its class, which any other is equivalent to (RFC 9110, 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct KnownStatus(u16);

impl KnownStatus {
    fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            usual @ (101 | 201 | 204 | 206 | 301 | 302 | 304 | 401 | 403 | 404 | 409 | 429
            | 502 | 503 | 504) => Self(usual),
            other => Self(other / 100 * 100),
        }
    }
}

impl EncodeLabelValue for KnownStatus {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), Error> {
        write!(encoder, "{}", self.0)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            attached: Gauge::default(),
            parked: Gauge::default(),
            parked_bytes: Gauge::default(),
            park_duration: Histogram::new(PARK_BUCKETS),
            refused: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
        }
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let attached =
            "Whether the activator has a stream to control; without one, sleeping apps do not wake";
        registry.register(
            "dormouse_activator_attached",
            attached,
            self.attached.clone(),
        );
        let parked = "Parked requests, which wait for a free slot of their app";
        registry.register("dormouse_parked_requests", parked, self.parked.clone());
        let bytes = "Memory of parked requests in bytes";
        registry.register("dormouse_parked_bytes", bytes, self.parked_bytes.clone());
        let waited = "Time that requests were parked";
        registry.register(
            "dormouse_park_duration_seconds",
            waited,
            self.park_duration.clone(),
        );
        let refused = "Requests and connections refused by a limit, by reason";
        registry.register("dormouse_refused_requests", refused, self.refused.clone());
        let duration = "Time from a request's head to the end of its response";
        registry.register(
            "http_server_request_duration_seconds",
            duration,
            self.duration.clone(),
        );
    }

    pub(crate) fn refused(&self, reason: Reason) {
        self.refused.get_or_create(&RefusedLabels { reason }).inc();
    }

    pub(crate) fn response_ended(&self, method: &Method, status: StatusCode, took: Duration) {
        let labels = RequestLabels {
            http_request_method: KnownMethod::of(method),
            http_response_status_code: KnownStatus::of(status),
        };
        self.duration
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_methods_and_statuses_make_no_new_series() {
        let metrics = Metrics::default();
        for (method, status) in [("GET", 200), ("GET", 299), ("BREW", 418), ("STEEP", 499)] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            metrics.response_ended(
                &method,
                StatusCode::from_u16(status).unwrap(),
                Duration::ZERO,
            );
        }
        metrics.refused(Reason::age);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let counts: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("seconds_count{"))
            .collect();
        assert_eq!(counts.len(), 2, "{text}");
        assert!(
            text.contains("http_request_method=\"_OTHER\",http_response_status_code=\"400\"} 2"),
            "{text}"
        );
        assert!(
            text.contains("dormouse_refused_requests_total{reason=\"age\"} 1"),
            "{text}"
        );
    }
}
