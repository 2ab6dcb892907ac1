//! The DaemonSet of `deploy/`, as a kubelet starts it: its containers, mounts and security contexts, given to a runtime. Paths of the node
//! that are this test's own stand in for the real ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use dormouse_rig::wait;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec, SecurityContext};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::containerd::Containerd;
use crate::cri::container::{
    Capabilities, ContainerConfig, ContainerName, LinuxContainer, Mount, Namespaces, Number,
    Profile, Security, Variable,
};
use crate::cri::{Id, PodConfig};

/// The node's own namespace.
const NODE: i32 = 2;
/// What a kubelet hides from a container that is not privileged, and what it makes read-only.
const MASKED: [&str; 10] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The DaemonSet's pod on a test's node.
pub(crate) struct NodePod {
    spec: PodSpec,
    data: BTreeMap<String, String>,
    /// The test's folders by those of a real node.
    folders: BTreeMap<&'static str, String>,
    config: PodConfig,
    id: String,
    started: u32,
}

/// The only object of a kind in a manifest.
fn read<T: DeserializeOwned>(file: &str, kind: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy/node/base")
        .join(file);
    let objects = serde_saphyr::from_multiple::<Value>(&fs::read_to_string(path).unwrap()).unwrap();
    let found = objects.into_iter().find(|object| object["kind"] == kind);
    serde_json::from_value(found.unwrap()).unwrap()
}

impl NodePod {
    /// Starts the pod, without containers. `node` has the values of variables that differ in this test; Services have no source.
    pub(crate) fn start(
        containerd: &mut Containerd<'_>,
        logs: &Path,
        node: &[(&str, String)],
        folders: BTreeMap<&'static str, String>,
    ) -> Self {
        let set: DaemonSet = read("daemonset.yaml", "DaemonSet");
        let map: ConfigMap = read("config.yaml", "ConfigMap");
        let spec = set.spec.unwrap().template.spec.unwrap();
        assert_eq!((spec.host_network, spec.host_pid), (Some(true), Some(true)));
        let mut data = map.data.unwrap();
        for source in ["DORMOUSE_API_SERVERS", "DORMOUSE_IN_CLUSTER"] {
            data.remove(source);
        }
        for (variable, value) in node {
            data.insert((*variable).to_owned(), value.clone());
        }
        let config = containerd
            .pod("dormouse-agent")
            .on_the_node(namespaces(), logs);
        let id = containerd.cri.run_pod(config.clone()).unwrap();
        Self {
            spec,
            data,
            folders,
            config,
            id,
            started: 0,
        }
    }

    /// Id of the pod.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Replaces the pod by one with this image, as the DaemonSet's controller does: the old pod ends first. The new one has no
    /// containers yet.
    pub(crate) fn replace(&mut self, containerd: &mut Containerd<'_>, image: &str) {
        containerd.cri.remove_pod(&self.id);
        let init = self.spec.init_containers.iter_mut().flatten();
        for container in init.chain(&mut self.spec.containers) {
            container.image = Some(image.to_owned());
        }
        self.id = containerd.cri.run_pod(self.config.clone()).unwrap();
    }

    /// Runs the init containers to their ends.
    pub(crate) fn initialize(&mut self, containerd: &mut Containerd<'_>) {
        for container in self.spec.init_containers.clone().unwrap() {
            let id = self.run(containerd, &container);
            wait("the init container to end", || {
                containerd.cri.exit_code(&id).is_some()
            });
            assert_eq!(containerd.cri.exit_code(&id), Some(0), "{}", container.name);
            containerd.cri.remove_container(&id);
        }
    }

    /// Starts the agent's container; returns its id.
    pub(crate) fn run_agent(&mut self, containerd: &mut Containerd<'_>) -> String {
        let container = self.spec.containers[0].clone();
        self.run(containerd, &container)
    }

    fn run(&mut self, containerd: &mut Containerd<'_>, container: &Container) -> String {
        self.started += 1;
        let config = self.container(container);
        let started = containerd
            .cri
            .run_container(&self.id, config, self.config.clone());
        started.unwrap_or_else(|error| panic!("{}: {error}", container.name))
    }

    fn container(&self, container: &Container) -> ContainerConfig {
        let metadata = ContainerName {
            name: container.name.clone(),
            attempt: self.started,
        };
        let security = container.security_context.as_ref().unwrap();
        ContainerConfig {
            metadata: Some(metadata),
            image: Some(Id::of(container.image.as_ref().unwrap())),
            command: container.command.clone().unwrap(),
            environment: self.environment(container),
            mounts: self.mounts(container),
            log: format!("{}-{}.log", container.name, self.started),
            linux: Some(LinuxContainer {
                security: Some(translate(security)),
            }),
        }
    }

    fn environment(&self, container: &Container) -> Vec<Variable> {
        let own = container.env.iter().flatten();
        let mut values: BTreeMap<_, _> = own
            .filter_map(|env| Some((env.name.clone(), env.value.clone()?)))
            .collect();
        if container.env_from.is_some() {
            // As with kubelet, a container's own variables count first.
            for (variable, value) in self.data.clone() {
                values.entry(variable).or_insert(value);
            }
        }
        values
            .into_iter()
            .map(|(key, value)| Variable { key, value })
            .collect()
    }

    fn mounts(&self, container: &Container) -> Vec<Mount> {
        let volumes = self.spec.volumes.as_ref().unwrap();
        let mounts = container.volume_mounts.iter().flatten();
        mounts
            .map(|mount| {
                let volume = volumes.iter().find(|volume| volume.name == mount.name);
                let path = &volume.unwrap().host_path.as_ref().unwrap().path;
                let host_path = self.folders.get(path.as_str()).unwrap_or(path).clone();
                fs::create_dir_all(&host_path).unwrap();
                Mount {
                    container_path: mount.mount_path.clone(),
                    host_path,
                    readonly: mount.read_only == Some(true),
                }
            })
            .collect()
    }
}

fn namespaces() -> Namespaces {
    Namespaces {
        network: NODE,
        pid: NODE,
        ipc: NODE,
    }
}

/// What a kubelet makes of a security context.
fn translate(context: &SecurityContext) -> Security {
    let capabilities = context.capabilities.clone().unwrap();
    let all = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    Security {
        capabilities: Some(Capabilities {
            add: capabilities.add.unwrap_or_default(),
            drop: capabilities.drop.unwrap_or_default(),
        }),
        namespaces: Some(namespaces()),
        user: context.run_as_user.map(|value| Number { value }),
        readonly_root: context.read_only_root_filesystem == Some(true),
        no_new_privileges: context.allow_privilege_escalation == Some(false),
        masked_paths: all(&MASKED),
        readonly_paths: all(&READ_ONLY),
        seccomp: Some(Profile { kind: 0 }),
    }
}
