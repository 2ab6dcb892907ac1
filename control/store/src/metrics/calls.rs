//! Metrics of calls, under the names of the gRPC middleware that etcd's dashboards and alerts read. A
//! method has metrics from its first call on.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use prost::Message;
use prost_types::FileDescriptorSet;
use tonic::Code;

use crate::proto::DESCRIPTORS;

/// Upper bounds of the latencies in seconds: those of the middleware, and some below them, since the
/// store answers most requests within a millisecond.
const LATENCIES_S: [f64; 15] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0,
];

/// The codes of gRPC with the names of Go, in the order of their numbers.
const CODES: [(Code, &str); 17] = [
    (Code::Ok, "OK"),
    (Code::Cancelled, "Canceled"),
    (Code::Unknown, "Unknown"),
    (Code::InvalidArgument, "InvalidArgument"),
    (Code::DeadlineExceeded, "DeadlineExceeded"),
    (Code::NotFound, "NotFound"),
    (Code::AlreadyExists, "AlreadyExists"),
    (Code::PermissionDenied, "PermissionDenied"),
    (Code::ResourceExhausted, "ResourceExhausted"),
    (Code::FailedPrecondition, "FailedPrecondition"),
    (Code::Aborted, "Aborted"),
    (Code::OutOfRange, "OutOfRange"),
    (Code::Unimplemented, "Unimplemented"),
    (Code::Internal, "Internal"),
    (Code::Unavailable, "Unavailable"),
    (Code::DataLoss, "DataLoss"),
    (Code::Unauthenticated, "Unauthenticated"),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(clippy::struct_field_names, reason = "the names of the labels")]
struct MethodLabels {
    grpc_type: &'static str,
    grpc_service: String,
    grpc_method: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(clippy::struct_field_names, reason = "the names of the labels")]
struct HandledLabels {
    grpc_type: &'static str,
    grpc_service: String,
    grpc_method: String,
    grpc_code: &'static str,
}

/// The metrics of one method.
#[derive(Debug)]
pub(crate) struct Method {
    labels: MethodLabels,
    started: Counter,
    /// In the order of [`CODES`].
    handled: [OnceLock<Counter>; CODES.len()],
    all_handled: Family<HandledLabels, Counter>,
    /// `None` for streams.
    seconds: Option<Histogram>,
}

impl Method {
    /// Whether a call has one request and one response.
    pub(crate) fn is_unary(&self) -> bool {
        self.seconds.is_some()
    }

    fn end(&self, code: Code, duration: Duration) {
        let index = CODES.iter().position(|(known, _)| *known == code);
        if let Some(index) = index {
            self.handled[index]
                .get_or_init(|| self.counter(CODES[index].1))
                .inc();
        }
        if let Some(seconds) = &self.seconds {
            seconds.observe(duration.as_secs_f64());
        }
    }

    fn counter(&self, grpc_code: &'static str) -> Counter {
        let MethodLabels {
            grpc_type,
            grpc_service,
            grpc_method,
        } = self.labels.clone();
        let labels = HandledLabels {
            grpc_type,
            grpc_service,
            grpc_method,
            grpc_code,
        };
        self.all_handled.get_or_create(&labels).clone()
    }
}

/// A call that runs. Dropped before its end, it was cancelled by the client.
#[derive(Debug)]
pub(crate) struct Call {
    method: Arc<Method>,
    began: Instant,
    ended: bool,
}

impl Call {
    /// Whether the call has one request and one response.
    pub(crate) fn is_unary(&self) -> bool {
        self.method.is_unary()
    }

    /// Records the end of the call; only the first one counts.
    pub(crate) fn end(&mut self, code: Code) {
        if !std::mem::replace(&mut self.ended, true) {
            self.method.end(code, self.began.elapsed());
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

/// The metrics of all calls, and the bytes of all connections.
#[derive(Debug)]
pub(crate) struct Calls {
    methods: HashMap<String, (MethodLabels, OnceLock<Arc<Method>>), foldhash::fast::RandomState>,
    started: Family<MethodLabels, Counter>,
    handled: Family<HandledLabels, Counter>,
    seconds: Family<MethodLabels, Histogram, fn() -> Histogram>,
    /// Bytes from clients.
    pub(crate) received: Counter,
    /// Bytes to clients.
    pub(crate) sent: Counter,
}

impl Default for Calls {
    fn default() -> Self {
        let methods = methods().map(|labels| {
            let path = format!("/{}/{}", labels.grpc_service, labels.grpc_method);
            (path, (labels, OnceLock::new()))
        });
        Self {
            methods: methods.collect(),
            started: Family::default(),
            handled: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(LATENCIES_S)),
            received: Counter::default(),
            sent: Counter::default(),
        }
    }
}

impl Calls {
    /// The start of a call of a path, `/SERVICE/METHOD`; `None` if the store has no such method.
    pub(crate) fn start(&self, path: &str) -> Option<Call> {
        let (labels, method) = self.methods.get(path)?;
        let method = method.get_or_init(|| Arc::new(self.method(labels)));
        method.started.inc();
        Some(Call {
            method: Arc::clone(method),
            began: Instant::now(),
            ended: false,
        })
    }

    fn method(&self, labels: &MethodLabels) -> Method {
        let unary = labels.grpc_type == "unary";
        Method {
            labels: labels.clone(),
            started: self.started.get_or_create(labels).clone(),
            handled: [const { OnceLock::new() }; CODES.len()],
            all_handled: self.handled.clone(),
            seconds: unary.then(|| self.seconds.get_or_create(labels).clone()),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("grpc_server_started", "Calls", self.started.clone());
        registry.register(
            "grpc_server_handled",
            "Calls that ended, with their codes",
            self.handled.clone(),
        );
        registry.register(
            "grpc_server_handling_seconds",
            "Seconds from a request to its response",
            self.seconds.clone(),
        );
        registry.register(
            "etcd_network_client_grpc_received_bytes",
            "Bytes from clients, after TLS",
            self.received.clone(),
        );
        registry.register(
            "etcd_network_client_grpc_sent_bytes",
            "Bytes to clients, before TLS",
            self.sent.clone(),
        );
    }
}

/// The methods of the services in the store's descriptors, which protoc has encoded.
fn methods() -> impl Iterator<Item = MethodLabels> {
    let files = FileDescriptorSet::decode(DESCRIPTORS)
        .unwrap_or_default()
        .file;
    files.into_iter().flat_map(|file| {
        let package = file.package().to_owned();
        file.service.into_iter().flat_map(move |service| {
            let grpc_service = format!("{package}.{}", service.name());
            service.method.into_iter().map(move |method| MethodLabels {
                grpc_type: kind(method.client_streaming(), method.server_streaming()),
                grpc_service: grpc_service.clone(),
                grpc_method: method.name().into(),
            })
        })
    })
}

/// The middleware's name of the kind of a method.
fn kind(client_streams: bool, server_streams: bool) -> &'static str {
    match (client_streams, server_streams) {
        (false, false) => "unary",
        (false, true) => "server_stream",
        (true, false) => "client_stream",
        (true, true) => "bidi_stream",
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    fn page(calls: &Calls) -> String {
        let (mut registry, mut page) = (Registry::default(), String::new());
        calls.register(&mut registry);
        text::encode(&mut page, &registry).unwrap();
        page
    }

    #[test]
    fn a_call_is_counted_with_the_code_of_its_end() {
        let calls = Calls::default();
        calls.start("/etcdserverpb.KV/Put").unwrap().end(Code::Ok);
        let mut refused = calls.start("/etcdserverpb.KV/Put").unwrap();
        refused.end(Code::NotFound);
        refused.end(Code::Ok);
        drop(refused);
        drop(calls.start("/etcdserverpb.Watch/Watch"));
        let page = page(&calls);
        let put = r#"grpc_type="unary",grpc_service="etcdserverpb.KV",grpc_method="Put""#;
        let watch =
            r#"grpc_type="bidi_stream",grpc_service="etcdserverpb.Watch",grpc_method="Watch""#;
        for line in [
            format!("grpc_server_started_total{{{put}}} 2"),
            format!(r#"grpc_server_handled_total{{{put},grpc_code="OK"}} 1"#),
            format!(r#"grpc_server_handled_total{{{put},grpc_code="NotFound"}} 1"#),
            format!(r#"grpc_server_handled_total{{{watch},grpc_code="Canceled"}} 1"#),
            format!("grpc_server_handling_seconds_count{{{put}}} 2"),
        ] {
            assert!(page.contains(&line), "{line} is not in\n{page}");
        }
        assert!(!page.contains("grpc_method=\"Range\""), "{page}");
    }

    #[test]
    fn paths_of_no_method_are_not_counted() {
        let calls = Calls::default();
        for path in [
            "/metrics",
            "/etcdserverpb.KV/Nothing",
            "/etcdserverpb.KV",
            "",
        ] {
            assert!(calls.start(path).is_none(), "{path}");
        }
    }
}
