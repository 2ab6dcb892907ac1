//! Pod objects: created from an app, read from the store, and updated with the status from their node.

mod earlier;
mod status;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_cluster::history::{APP_LABEL, owner};
use dormouse_cluster::pod::{has_ended, node_of, waits_because};
use dormouse_cluster::revision::key_of;
use dormouse_cluster::{App, Key, Object};
use dormouse_fleet::proto;
use k8s_openapi::api::core::v1::{ContainerPort, Pod, PodSpec, PodStatus, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::action::Failure;
pub(crate) use earlier::template_of;
pub(crate) use status::{without_refused, write_status};

/// Reason of a pod for which no node has room, as Kubernetes has it.
pub(crate) const UNSCHEDULABLE: &str = "Unschedulable";
/// The annotation with the app's VIP index, needed also after the app's deletion.
pub(crate) const VIP_ANNOTATION: &str = "dormouse.dev/vip-index";
/// The annotation with the hash of what the pod runs, see [`template`].
pub(crate) const TEMPLATE_ANNOTATION: &str = "dormouse.dev/template";
/// The label with the name of the revision that the pod runs.
pub(crate) const REVISION_LABEL: &str = "dormouse.dev/revision";
/// The annotation with the port on which the pod listens. A pod without it has a hash of the form of [`earlier`].
pub(crate) const PORT_ANNOTATION: &str = "dormouse.dev/port";
/// Limit of a pod's name: the length of a label's value.
const NAME_MAX: usize = 63;

/// A generator of unique names and uids of pods, one for all shards.
#[derive(Debug)]
pub(crate) struct Names(AtomicU64);

impl Names {
    /// A generator with a seed, which must differ between starts.
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// SplitMix64.
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn name(&self, app: &str) -> String {
        let suffix = format!("{:07x}", self.next() >> 36);
        let room = NAME_MAX - suffix.len() - 1;
        let stem: String = app.chars().take(room).collect();
        format!("{}-{suffix}", stem.trim_end_matches(['-', '.']))
    }

    pub(crate) fn uid(&self) -> String {
        let (high, low) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            (low >> 48) & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        )
    }
}

/// A new pod of an app with this [`template`], without a node.
pub(crate) fn of(app: &App, vip: u32, template: String, names: &Names) -> Pod {
    let key = app.key();
    let mut container = app.spec.container.clone();
    let port = app.spec.target_port();
    if container.name.is_empty() {
        "app".clone_into(&mut container.name);
    }
    let ports = container.ports.get_or_insert_default();
    if !ports
        .iter()
        .any(|known| known.container_port == i32::from(port))
    {
        ports.push(ContainerPort {
            container_port: i32::from(port),
            ..ContainerPort::default()
        });
    }
    container
        .readiness_probe
        .get_or_insert_with(|| tcp_probe(port));
    let selector = Some(app.spec.node_selector.clone()).filter(|selector| !selector.is_empty());
    Pod {
        metadata: ObjectMeta {
            name: Some(names.name(&key.name)),
            uid: Some(names.uid()),
            labels: Some(
                [
                    (APP_LABEL.to_owned(), key.name.clone()),
                    (REVISION_LABEL.to_owned(), revision_of(app)),
                ]
                .into(),
            ),
            annotations: Some(
                [
                    (VIP_ANNOTATION.to_owned(), vip.to_string()),
                    (TEMPLATE_ANNOTATION.to_owned(), template),
                    (PORT_ANNOTATION.to_owned(), port.to_string()),
                ]
                .into(),
            ),
            owner_references: Some(vec![owner(app)]),
            namespace: Some(key.namespace),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container],
            node_selector: selector,
            restart_policy: Some("Never".to_owned()),
            termination_grace_period_seconds: Some(
                app.spec.termination_grace_period_seconds.into(),
            ),
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: Some("Pending".to_owned()),
            ..PodStatus::default()
        }),
    }
}

/// The name of the revision that pods of an app run. A child app is a revision, and has its name.
fn revision_of(app: &App) -> String {
    let key = app.key();
    if app.parent().is_some() {
        key.name
    } else {
        key_of(&key, app.revision_number()).name
    }
}

/// A hash of what the app's pods run and of the app's uid: pods of a deleted app are not used for a new one of its name.
pub(crate) fn template(app: &App) -> String {
    let uid = app.metadata.uid.as_deref().unwrap_or_default();
    app.spec.template().hash(uid)
}

/// The fields of a pod object that the controller uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ObservedPod {
    /// The node to which it is bound.
    pub node: Option<String>,
    /// Its address, if it is ready.
    pub ready: Option<Ipv6Addr>,
    /// Why it ended, if it did.
    pub ended: Option<Failure>,
    /// Why it is not ready, if its node or the scheduler has reported a reason.
    pub waiting: Option<Failure>,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// The hash of what it runs.
    pub template: String,
    /// The port on which it listens; none: it was created before pods had it.
    pub port: Option<u16>,
    /// The uid of its app.
    pub owner: String,
}

/// Reads a pod object.
pub(crate) fn observe(pod: &Pod) -> ObservedPod {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let address = status
        .and_then(|status| status.pod_ip.as_deref())
        .and_then(|address| address.parse::<Ipv6Addr>().ok())
        // The activator connects to this address, and any client of the store may have written it.
        .filter(|address| dormouse_nodes::unusable((*address).into()).is_none());
    let ended = status.filter(|status| has_ended(status));
    let waiting = waits_because(pod).filter(|_| ended.is_none());
    ObservedPod {
        waiting: waiting.map(|because| Failure::new(because.reason, because.message)),
        node: node_of(pod).map(str::to_owned),
        ready: address.filter(|_| ready),
        ended: ended.map(|status| {
            let reason = status.reason.clone().filter(|reason| !reason.is_empty());
            Failure::new(
                reason.unwrap_or_else(|| "Ended".to_owned()),
                status.message.clone().unwrap_or_default(),
            )
        }),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        template: annotation(pod, TEMPLATE_ANNOTATION)
            .unwrap_or_default()
            .to_owned(),
        port: annotation(pod, PORT_ANNOTATION).and_then(|port| port.parse().ok()),
        owner: owner_uid(pod).to_owned(),
    }
}

/// The app and the VIP index of a pod; none if the controller did not create it.
pub fn owner_of(pod: &Pod) -> Option<(Key, u32)> {
    let app = pod.metadata.labels.as_ref()?.get(APP_LABEL)?;
    let vip = annotation(pod, VIP_ANNOTATION)?.parse().ok()?;
    Some((Key::new(pod.metadata.namespace.clone()?, app.clone()), vip))
}

/// The message that makes a node run or stop a pod.
pub(crate) fn spec(pod: &Pod, stop: bool) -> proto::PodSpec {
    let key = pod.key();
    let json = if stop {
        Vec::new()
    } else {
        serde_json::to_vec(pod).unwrap_or_default()
    };
    proto::PodSpec {
        namespace: key.namespace,
        name: key.name,
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        stop,
        pod: json,
        cohort: 0,
    }
}

fn tcp_probe(port: u16) -> Probe {
    let port = IntOrString::Int(i32::from(port));
    Probe {
        tcp_socket: Some(TCPSocketAction { port, host: None }),
        ..Probe::default()
    }
}

/// The uid of a pod's app.
fn owner_uid(pod: &Pod) -> &str {
    let owners = pod.metadata.owner_references.as_deref();
    let owner = owners.unwrap_or_default().first();
    owner.map_or("", |owner| owner.uid.as_str())
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let annotations: &BTreeMap<String, String> = pod.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests;
