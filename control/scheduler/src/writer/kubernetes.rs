//! Decisions by a Kubernetes API server: the subresources `binding` and `status`, deletions, and events.

use dormouse_cluster::Object;
use dormouse_scheduler_decide::PodKey;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use super::{DISRUPTION_TARGET, Evicted, Occurred, PREEMPTION_BY_SCHEDULER, reason_of};
use crate::state::{Rejection, Victim};

/// Longest text of an event, in bytes; the API server refuses longer ones.
const NOTE_MAX: usize = 1_024;

/// An API server.
pub(crate) struct Kubernetes {
    client: Client,
    recorder: Recorder,
}

impl Kubernetes {
    pub(crate) fn new(client: Client, identity: String) -> Self {
        let reporter = Reporter {
            controller: "dormouse-scheduler".to_owned(),
            instance: Some(identity),
        };
        let recorder = Recorder::new(client.clone(), reporter);
        Self { client, recorder }
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Binds a pod to its node; returns whether the server did.
    pub(super) async fn bind(&self, pod: &Pod, node: &str) -> bool {
        let key = pod.key();
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                uid: pod.metadata.uid.clone(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let pods = self.pods(&key.namespace);
        let params = PostParams::default();
        let written = pods.create_subresource::<_, Status>("binding", &key.name, &params, &binding);
        match written.await {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(pod = %key, node, %error, "the binding was refused, retrying");
                false
            }
        }
    }

    /// Writes the condition and the nomination of a pod, unless they are there.
    pub(super) async fn explain(&self, pod: &Pod, rejection: &Rejection) {
        let status = pod.status.as_ref();
        let mut conditions = status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let reason = reason_of(rejection);
        let before = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False");
        let is_written = before.is_some_and(|one| {
            one.reason.as_deref() == Some(reason)
                && one.message.as_deref() == Some(&rejection.message)
        });
        let nominated = status.and_then(|status| status.nominated_node_name.as_deref());
        let nomination = rejection.nominated.as_deref();
        let nomination = nomination.filter(|node| *node != nominated.unwrap_or_default());
        if is_written && nomination.is_none() {
            return;
        }
        let mut patch = json!({});
        if !is_written {
            let since = before.and_then(|one| one.last_transition_time.clone());
            let since = since.map_or_else(Timestamp::now, |since| since.0);
            patch["conditions"] = json!([{"type": "PodScheduled", "status": "False", "reason": reason,
                "message": rejection.message, "lastTransitionTime": since.to_string()}]);
        }
        if let Some(node) = nomination {
            patch["nominatedNodeName"] = Some(node).filter(|node| !node.is_empty()).into();
        }
        let key = pod.key();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Err(error) = self.patch(&key.namespace, &key.name, uid, patch).await
            && !is_gone(&error)
        {
            tracing::warn!(pod = %key, %error, "cannot write why a pod has no node");
        }
    }

    /// Patches the status of a pod with this uid; of any, if it is empty.
    async fn patch(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        status: Value,
    ) -> Result<Pod, kube::Error> {
        let mut patch = json!({"status": status});
        if !uid.is_empty() {
            patch["metadata"] = json!({"uid": uid});
        }
        let pods = self.pods(namespace);
        pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
    }

    pub(super) async fn clear_nomination(&self, key: &PodKey) {
        let cleared = json!({"nominatedNodeName": null});
        if let Err(error) = self.patch(&key.namespace, &key.name, "", cleared).await
            && !is_gone(&error)
        {
            tracing::warn!(pod = %key, %error, "cannot remove a nomination");
        }
    }

    /// Evicts a pod: it gets the condition, and is deleted.
    pub(super) async fn evict(&self, victim: &Victim, message: &str) -> Evicted {
        let PodKey { namespace, name } = &victim.key;
        let condition = json!([{"type": DISRUPTION_TARGET, "status": "True", "reason": PREEMPTION_BY_SCHEDULER,
            "message": message, "lastTransitionTime": Timestamp::now().to_string()}]);
        let status = json!({"conditions": condition});
        let marked = match self.patch(namespace, name, &victim.uid, status).await {
            Ok(marked) => marked,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(victim.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.pods(namespace).delete(name, &params).await {
            Ok(_) => Ok(Some(marked)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) async fn record(&self, about: &Pod, occurred: &Occurred) {
        let mut note = occurred.message.clone();
        note.truncate(note.floor_char_boundary(NOTE_MAX));
        let event = Event {
            type_: if occurred.is_warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: occurred.reason.to_owned(),
            note: Some(note),
            action: occurred.action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &about.object_ref(&())).await {
            tracing::warn!(pod = %about.key(), reason = occurred.reason, %error, "cannot record an event");
        }
    }
}

/// Whether the object is gone, or another one has its name.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
}
