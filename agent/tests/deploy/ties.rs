//! Names, labels, selectors, mounts and security of the base tie up.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, ContainerPort, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::flags::pod;
use crate::manifests::{base, documents, folder, only};

const NAMESPACE: &str = "dormouse-system";
/// Kinds without a namespace.
const CLUSTER: [&str; 3] = ["Namespace", "ClusterRole", "ClusterRoleBinding"];

fn containers() -> Vec<Container> {
    let pod = pod();
    let init = pod.init_containers.into_iter().flatten();
    init.chain(pod.containers).collect()
}

#[test]
fn every_object_is_in_the_namespace_of_the_base() {
    for object in base() {
        let (kind, metadata) = (&object["kind"], &object["metadata"]);
        if CLUSTER.contains(&kind.as_str().unwrap()) {
            assert!(metadata["namespace"].is_null(), "{kind}");
        } else {
            assert_eq!(metadata["namespace"], NAMESPACE, "{kind}");
        }
    }
}

#[test]
fn the_binding_gives_the_role_to_the_account_of_the_pods() {
    let binding: ClusterRoleBinding = only("ClusterRoleBinding");
    let role: ClusterRole = only("ClusterRole");
    let account: ServiceAccount = only("ServiceAccount");
    assert_eq!(Some(binding.role_ref.name), role.metadata.name);
    let [subject] = &binding.subjects.unwrap()[..] else {
        panic!("one subject");
    };
    assert_eq!(Some(&subject.name), account.metadata.name.as_ref());
    assert_eq!(subject.namespace.as_deref(), Some(NAMESPACE));
    assert_eq!(pod().service_account_name, account.metadata.name);
}

#[test]
fn selectors_select_the_pods() {
    let set: DaemonSet = only("DaemonSet");
    let spec = set.spec.unwrap();
    let labels = spec.template.metadata.unwrap().labels.unwrap();
    let selected = spec.selector.match_labels.unwrap();
    assert!(
        selected
            .iter()
            .all(|pair| labels.get(pair.0) == Some(pair.1))
    );
    let monitor = documents(&folder().join("monitoring/monitor.yaml"));
    let service: Service = serde_json::from_value(monitor[0].clone()).unwrap();
    let spec = service.spec.unwrap();
    let selected = spec.selector.unwrap();
    assert!(
        selected
            .iter()
            .all(|pair| labels.get(pair.0) == Some(pair.1))
    );
    let [port] = &spec.ports.unwrap()[..] else {
        panic!("one port");
    };
    let target = IntOrString::String("metrics".to_owned());
    assert_eq!(port.target_port.as_ref(), Some(&target));
    let listed = service.metadata.labels.unwrap();
    let selector = &monitor[1]["spec"]["selector"]["matchLabels"];
    for (label, value) in selector.as_object().unwrap() {
        assert_eq!(listed.get(label).map(String::as_str), value.as_str());
    }
}

#[test]
fn every_mount_has_a_volume_and_every_volume_is_mounted() {
    let volumes = pod().volumes.unwrap();
    let volumes: BTreeSet<_> = volumes.iter().map(|volume| volume.name.clone()).collect();
    let containers = containers();
    let mounts = containers
        .iter()
        .flat_map(|container| container.volume_mounts.iter().flatten());
    let mounted: BTreeSet<_> = mounts.map(|mount| mount.name.clone()).collect();
    assert_eq!(volumes, mounted);
}

/// Paths that the agent gives to the node (the plugin's socket and state folder, pins), or that `uninstall` finds there.
#[test]
fn folders_that_the_node_uses_too_have_the_same_path_on_it() {
    let volumes = pod().volumes.unwrap();
    for mount in containers()
        .iter()
        .flat_map(|container| container.volume_mounts.iter().flatten())
    {
        let volume = volumes
            .iter()
            .find(|volume| volume.name == mount.name)
            .unwrap();
        let path = &volume.host_path.as_ref().unwrap().path;
        assert!(
            &mount.mount_path == path || mount.mount_path.starts_with("/host/"),
            "{} at {}",
            path,
            mount.mount_path
        );
    }
}

#[test]
fn what_the_agent_writes_is_in_a_mounted_folder() {
    let map: ConfigMap = only("ConfigMap");
    let pod = pod();
    let agent = &pod.containers[0];
    let mounts = agent.volume_mounts.as_ref().unwrap();
    let data = map.data.unwrap();
    for variable in [
        "DORMOUSE_SOCKET",
        "DORMOUSE_STATE_DIR",
        "DORMOUSE_CNI_CONF_DIR",
    ] {
        let path = Path::new(&data[variable]);
        let is_above = |folder: &str| path.starts_with(folder);
        let mount = mounts.iter().find(|mount| is_above(&mount.mount_path));
        let mount = mount.unwrap_or_else(|| panic!("{variable}"));
        assert_ne!(mount.read_only, Some(true), "{variable}");
    }
}

#[test]
fn probes_ask_the_port_of_the_metrics() {
    let map: ConfigMap = only("ConfigMap");
    let data = map.data.unwrap();
    let pod = pod();
    let agent = &pod.containers[0];
    let ports = agent.ports.as_ref().unwrap();
    let named = |port: &&ContainerPort| port.name.as_deref() == Some("metrics");
    let port = ports.iter().find(named).unwrap();
    assert!(data["DORMOUSE_METRICS"].ends_with(&format!(":{}", port.container_port)));
    // kube-proxy has it on a node that is migrated.
    assert_ne!(port.container_port, 10_249);
    let probes = [&agent.readiness_probe, &agent.liveness_probe];
    let paths = probes.map(|probe| {
        let get = probe.as_ref().unwrap().http_get.as_ref().unwrap();
        assert_eq!(get.port, IntOrString::String("metrics".to_owned()));
        get.path.clone().unwrap()
    });
    assert_eq!(paths, ["/readyz", "/healthz"]);
}

#[test]
fn no_container_is_privileged_and_each_has_the_version_of_this_agent() {
    let image = concat!("localhost/dormouse-node:", env!("CARGO_PKG_VERSION"));
    for container in containers() {
        let security = container.security_context.unwrap();
        assert_eq!(security.privileged, None, "{}", container.name);
        assert_eq!(security.allow_privilege_escalation, Some(false));
        assert_eq!(security.read_only_root_filesystem, Some(true));
        assert_eq!(security.capabilities.unwrap().drop.unwrap(), ["ALL"]);
        assert_eq!(container.image.as_deref(), Some(image));
    }
}
