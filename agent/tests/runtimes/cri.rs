//! The part of the kubelet's interface to container runtimes (CRI, `runtime.v1`) that starts and stops pods.

pub(crate) mod container;

use std::collections::HashMap;
use std::path::Path;

use dormouse_rig::PATIENCE;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use container::{Namespaces, SandboxSecurity};

/// A connection to a runtime.
pub(crate) struct Cri {
    runtime: tokio::runtime::Runtime,
    client: Grpc<Channel>,
}

impl Cri {
    /// Connects to a runtime's socket at the first call.
    pub(crate) fn new(socket: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
        let channel = runtime.block_on(async { endpoint.timeout(PATIENCE).connect_lazy() });
        Self {
            runtime,
            client: Grpc::new(channel),
        }
    }

    fn call<Q, A>(&mut self, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let path = format!("/runtime.v1.{method}");
        let path = PathAndQuery::try_from(path).unwrap();
        self.runtime.block_on(async {
            let ready = self.client.ready().await;
            ready.map_err(|error| Status::unavailable(error.to_string()))?;
            let codec = ProstCodec::default();
            let answer = self.client.unary(Request::new(request), path, codec).await;
            Ok(answer?.into_inner())
        })
    }

    /// Whether the runtime answers.
    pub(crate) fn answers(&mut self) -> bool {
        let answer = self.call("RuntimeService/Status", StatusQuery::default());
        answer.is_ok_and(|answer: StatusAnswer| answer.status.is_some())
    }

    /// Whether the runtime reports its network ready.
    pub(crate) fn network_ready(&mut self) -> bool {
        let answer = self.call("RuntimeService/Status", StatusQuery::default());
        let status = answer.map(|answer: StatusAnswer| answer.status.unwrap_or_default());
        let conditions = status.map(|status| status.conditions).unwrap_or_default();
        conditions
            .iter()
            .any(|condition| condition.kind == "NetworkReady" && condition.status)
    }

    /// Whether the runtime has an image.
    pub(crate) fn has_image(&mut self, name: &str) -> bool {
        let request = ImageQuery {
            image: Some(Id::of(name)),
        };
        let answer = self.call("ImageService/ImageStatus", request);
        answer.is_ok_and(|answer: ImageAnswer| answer.image.is_some())
    }

    /// Starts a pod; returns its id.
    pub(crate) fn run_pod(&mut self, pod: PodConfig) -> Result<String, Status> {
        let request = RunPod { config: Some(pod) };
        let answer: Id = self.call("RuntimeService/RunPodSandbox", request)?;
        Ok(answer.id)
    }

    /// Address of a running pod.
    pub(crate) fn address(&mut self, id: &str) -> String {
        let answer: PodAnswer = self
            .call("RuntimeService/PodSandboxStatus", Id::of(id))
            .unwrap();
        answer.status.unwrap().network.unwrap().ip
    }

    /// Stops a pod and removes it.
    pub(crate) fn remove_pod(&mut self, id: &str) {
        let _: Nothing = self
            .call("RuntimeService/StopPodSandbox", Id::of(id))
            .unwrap();
        let _: Nothing = self
            .call("RuntimeService/RemovePodSandbox", Id::of(id))
            .unwrap();
    }
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct StatusQuery {
    #[prost(bool, tag = "1")]
    verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    status: Option<RuntimeStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Message)]
struct Condition {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(bool, tag = "2")]
    status: bool,
}

#[derive(Clone, PartialEq, Message)]
struct ImageQuery {
    #[prost(message, optional, tag = "1")]
    image: Option<Id>,
}

#[derive(Clone, PartialEq, Message)]
struct ImageAnswer {
    #[prost(message, optional, tag = "1")]
    image: Option<Id>,
}

#[derive(Clone, PartialEq, Message)]
struct RunPod {
    #[prost(message, optional, tag = "1")]
    config: Option<PodConfig>,
}

/// A pod to start.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(string, tag = "3")]
    logs: String,
    #[prost(message, repeated, tag = "5")]
    ports: Vec<Port>,
    #[prost(map = "string, string", tag = "7")]
    annotations: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    linux: Option<Linux>,
}

impl PodConfig {
    /// A pod of the namespace `default`, in a cgroup.
    pub(crate) fn new(name: &str, cgroup: String) -> Self {
        let metadata = Metadata {
            name: name.to_owned(),
            uid: name.to_owned(),
            namespace: "default".to_owned(),
        };
        Self {
            metadata: Some(metadata),
            linux: Some(Linux {
                cgroup,
                security: None,
            }),
            ..Self::default()
        }
    }

    /// Adds an annotation.
    #[must_use]
    pub(crate) fn annotate(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// In these namespaces of the node; the logs of its containers are in `logs`.
    #[must_use]
    pub(crate) fn on_the_node(mut self, namespaces: Namespaces, logs: &Path) -> Self {
        let namespaces = Some(namespaces);
        if let Some(linux) = &mut self.linux {
            linux.security = Some(SandboxSecurity { namespaces });
        }
        self.logs = logs.display().to_string();
        self
    }

    /// Requests a port of the node for a port of the pod.
    #[must_use]
    pub(crate) fn port(mut self, host: i32, container: i32) -> Self {
        self.ports.push(Port { container, host });
        self
    }
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct Port {
    #[prost(int32, tag = "2")]
    container: i32,
    #[prost(int32, tag = "3")]
    host: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Linux {
    #[prost(string, tag = "1")]
    cgroup: String,
    #[prost(message, optional, tag = "2")]
    security: Option<SandboxSecurity>,
}

/// A pod's id, or an image's name.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

impl Id {
    pub(crate) fn of(id: &str) -> Self {
        Self { id: id.to_owned() }
    }
}

#[derive(Clone, PartialEq, Message)]
struct PodAnswer {
    #[prost(message, optional, tag = "1")]
    status: Option<PodStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct PodStatus {
    #[prost(message, optional, tag = "5")]
    network: Option<PodNetwork>,
}

#[derive(Clone, PartialEq, Message)]
struct PodNetwork {
    #[prost(string, tag = "1")]
    ip: String,
}
