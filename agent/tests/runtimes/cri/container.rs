//! The part of the kubelet's interface to container runtimes (CRI, `runtime.v1`) that runs containers in a pod.

use prost::Message;
use tonic::Status;

use super::{Cri, Id, Nothing, PodConfig};

/// Seconds that a container gets to end by itself.
const STOP_SECONDS: i64 = 10;
/// `CONTAINER_EXITED`
const EXITED: i32 = 2;

impl Cri {
    /// Starts a container in a pod; returns its id.
    pub(crate) fn run_container(
        &mut self,
        pod: &str,
        config: ContainerConfig,
        pod_config: PodConfig,
    ) -> Result<String, Status> {
        let request = CreateContainer {
            pod: pod.to_owned(),
            config: Some(config),
            pod_config: Some(pod_config),
        };
        let created: Id = self.call("RuntimeService/CreateContainer", request)?;
        let _: Nothing = self.call("RuntimeService/StartContainer", Id::of(&created.id))?;
        Ok(created.id)
    }

    /// The exit code of a container that has ended.
    pub(crate) fn exit_code(&mut self, id: &str) -> Option<i32> {
        let answer: StatusAnswer = self
            .call("RuntimeService/ContainerStatus", Id::of(id))
            .unwrap();
        let status = answer.status.unwrap();
        (status.state == EXITED).then_some(status.exit_code)
    }

    /// Ends a container, as a kubelet does, and removes it.
    pub(crate) fn remove_container(&mut self, id: &str) {
        let stop = StopContainer {
            id: id.to_owned(),
            timeout: STOP_SECONDS,
        };
        let _: Nothing = self.call("RuntimeService/StopContainer", stop).unwrap();
        let _: Nothing = self
            .call("RuntimeService/RemoveContainer", Id::of(id))
            .unwrap();
    }
}

#[derive(Clone, PartialEq, Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    pod: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pod_config: Option<PodConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct StopContainer {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int64, tag = "2")]
    timeout: i64,
}

#[derive(Clone, PartialEq, Message)]
struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    status: Option<ContainerStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerStatus {
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(int32, tag = "7")]
    exit_code: i32,
}

/// A container to start.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ContainerName>,
    #[prost(message, optional, tag = "2")]
    pub(crate) image: Option<Id>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) command: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) environment: Vec<Variable>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) mounts: Vec<Mount>,
    #[prost(string, tag = "11")]
    pub(crate) log: String,
    #[prost(message, optional, tag = "15")]
    pub(crate) linux: Option<LinuxContainer>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerName {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint32, tag = "2")]
    pub(crate) attempt: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Variable {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mount {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(bool, tag = "3")]
    pub(crate) readonly: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LinuxContainer {
    #[prost(message, optional, tag = "2")]
    pub(crate) security: Option<Security>,
}

/// The security context of a container.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Security {
    #[prost(message, optional, tag = "1")]
    pub(crate) capabilities: Option<Capabilities>,
    #[prost(message, optional, tag = "3")]
    pub(crate) namespaces: Option<Namespaces>,
    #[prost(message, optional, tag = "5")]
    pub(crate) user: Option<Number>,
    #[prost(bool, tag = "7")]
    pub(crate) readonly_root: bool,
    #[prost(bool, tag = "11")]
    pub(crate) no_new_privileges: bool,
    #[prost(string, repeated, tag = "13")]
    pub(crate) masked_paths: Vec<String>,
    #[prost(string, repeated, tag = "14")]
    pub(crate) readonly_paths: Vec<String>,
    /// The runtime's default.
    #[prost(message, optional, tag = "15")]
    pub(crate) seccomp: Option<Profile>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Capabilities {
    #[prost(string, repeated, tag = "1")]
    pub(crate) add: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) drop: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Number {
    #[prost(int64, tag = "1")]
    pub(crate) value: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
}

/// Which of the node's namespaces a pod has: 2, or 0 for its own.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Namespaces {
    #[prost(int32, tag = "1")]
    pub(crate) network: i32,
    #[prost(int32, tag = "2")]
    pub(crate) pid: i32,
    #[prost(int32, tag = "3")]
    pub(crate) ipc: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SandboxSecurity {
    #[prost(message, optional, tag = "1")]
    pub(crate) namespaces: Option<Namespaces>,
}
