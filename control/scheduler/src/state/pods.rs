//! Changes of pods, as the store reports them.

use std::sync::Arc;

use dormouse_cluster::Object;
use dormouse_cluster::pod::{has_ended, node_of, waits_because};
use dormouse_scheduler_decide::{DEFAULT_SCHEDULER, Malformed, Pod, PodKey};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use k8s_openapi::jiff::Timestamp;

use super::cycle::{Rejection, Verdict, Work};
use super::{Known, State};
use crate::queue::{Happened, Judge, Waiting};

/// The text that kube-apiserver writes.
const GATED: &str = "Scheduling is blocked due to non-empty scheduling gates";

impl State {
    /// A pod that has ended counts no more than one that is gone.
    pub(super) fn apply_pod(&mut self, now: Timestamp, key: &PodKey, pod: Option<&Arc<ApiPod>>) {
        let Some(api) = pod.filter(|pod| !pod.status.as_ref().is_some_and(has_ended)) else {
            self.forget(now, key);
            return;
        };
        let uid = uid(api);
        self.confirm(now, key, &uid);
        if let Some(known) = self.pods.get(key) {
            if known.uid != uid {
                self.forget(now, key);
            } else if known.revision > api.revision() {
                // Late: a newer state was applied already.
                return;
            }
        }
        if node_of(api).is_some() {
            let pod = Pod::parse(api).or_else(|error| without_requests(api, &error));
            match pod {
                Ok(mut pod) => {
                    self.decider.share(&mut pod);
                    self.bound(now, api, pod);
                }
                Err(_no_name) => self.forget(now, key),
            }
        } else if is_leaving(api) || !self.profiles.has(scheduler_of(api)) {
            self.forget(now, key);
        } else {
            match self.parse(api) {
                Ok(pod) => self.waits(now, api, pod),
                Err(error) => self.unreadable(now, key, api, &error),
            }
        }
    }

    /// Parses the object of a pod without a node.
    fn parse(&mut self, api: &Arc<ApiPod>) -> Result<Pod, Malformed> {
        let last = self.last.as_ref();
        let alike = last.and_then(|(own, pod)| pod.parse_alike(own, api));
        if let Some(alike) = alike {
            return alike;
        }
        let mut pod = Pod::parse(api)?;
        self.decider.share(&mut pod);
        self.last = Some((Arc::clone(api), pod.clone()));
        Ok(pod)
    }

    /// A pod that is on a node.
    fn bound(&mut self, now: Timestamp, api: &ApiPod, pod: Pod) {
        let key = pod.key().clone();
        self.queue.remove(&key);
        self.pending.remove(&key);
        self.reports.remove(&key);
        self.settle(&key, Ok(pod.node_name()));
        let assumed = self.assumed.remove(&key).map(|assumed| assumed.pod);
        let pod = Arc::new(pod);
        let old = self.remember(api, &pod);
        self.replace(api, assumed.as_ref().or(old.as_ref()), &pod);
        // A pod that comes to its node is a new one there.
        let old = old.filter(|old| !old.node_name().is_empty());
        let new = Some(pod);
        self.wake(now, Happened::Pod { old, new });
    }

    /// Lets decisions see a pod, unless they see the same already: a write of its status changes nothing for them.
    fn replace(&mut self, api: &ApiPod, old: Option<&Arc<Pod>>, new: &Arc<Pod>) {
        if old.is_none_or(|old| old != new) {
            self.decider.set_pod(api, Pod::clone(new));
        }
    }

    /// A pod that has no node.
    fn waits(&mut self, now: Timestamp, api: &Arc<ApiPod>, pod: Pod) {
        let key = pod.key().clone();
        let before = self.pending.insert(key.clone(), Arc::clone(api));
        let pod = self.with_nomination(before.as_deref(), pod);
        let pod = Arc::new(pod);
        let old = self.remember(api, &pod);
        let waiting = Waiting {
            pod: Arc::clone(&pod),
            scheduler: scheduler_of(api).into(),
        };
        if let Some(binding) = self.binding.get_mut(&key) {
            binding.waiting = waiting;
            return;
        }
        match self.assumed.get(&key) {
            // Its binding is written, and an older update comes late: the next one has it on its node, or removes it.
            Some(assumed) if assumed.expires.is_none() => return,
            Some(_) => {}
            None => self.replace(api, old.as_ref(), &pod),
        }
        let is_changed = before.is_some_and(|before| before.spec != api.spec);
        let judge = self.profiles.judge(self.decider.snapshot());
        let is_gated = judge.is_gated(&waiting);
        self.queue.set(now, &judge, waiting, is_changed);
        if is_gated {
            self.report(&key, api, Rejection::gated(GATED.to_owned()));
        } else {
            self.reports.remove(&key);
        }
    }

    /// A nomination of this scheduler is in force before it is in the object: a write of something else does not end it.
    fn with_nomination(&self, before: Option<&ApiPod>, pod: Pod) -> Pod {
        let written = before.map(nominated);
        let in_force = self.pods.get(pod.key());
        match (written, in_force) {
            (Some(written), Some(known)) if written == pod.nominated_node() => {
                pod.nominated(known.pod.nominated_node())
            }
            _ => pod,
        }
    }

    /// A pod that cannot be decided on until it is changed.
    fn unreadable(&mut self, now: Timestamp, key: &PodKey, api: &Arc<ApiPod>, error: &Malformed) {
        self.forget(now, key);
        let message = format!("the pod cannot be read: {error}");
        self.report(key, api, Rejection::failed(message));
    }

    /// Reports about a pod that does not enter the queue, unless its condition says so: the report itself changes the pod.
    fn report(&mut self, key: &PodKey, api: &Arc<ApiPod>, rejection: Rejection) {
        if waits_because(api).is_some_and(|because| because.message == rejection.message) {
            self.reports.remove(key);
            return;
        }
        let work = Work {
            pod: Arc::clone(api),
            attempt: None,
            verdict: Verdict::Rejected(rejection),
        };
        self.reports.push(key.clone(), work);
    }

    /// Removes all that is known of a pod.
    pub(super) fn forget(&mut self, now: Timestamp, key: &PodKey) {
        self.queue.remove(key);
        self.pending.remove(key);
        self.binding.remove(key);
        self.inexact.remove(key);
        self.announced.remove(key);
        self.reports.remove(key);
        let assumed = self.assumed.remove(key).map(|assumed| assumed.pod);
        let known = self.pods.remove(key).map(|known| known.pod);
        self.decider.remove_pod(key);
        self.settle(key, Err("the pod was deleted"));
        if let Some(old) = assumed.or(known) {
            let old = Some(old);
            self.wake(now, Happened::Pod { old, new: None });
        }
    }

    /// Records a pod; returns what it was before.
    fn remember(&mut self, api: &ApiPod, pod: &Arc<Pod>) -> Option<Arc<Pod>> {
        let known = Known {
            pod: Arc::clone(pod),
            uid: uid(api),
            revision: api.revision(),
        };
        let old = self.pods.insert(pod.key().clone(), known);
        old.map(|known| known.pod)
    }
}

/// A bound pod whose requests cannot be read still counts as one pod on its node, with its labels, ports and volumes.
fn without_requests(api: &ApiPod, error: &Malformed) -> Result<Pod, Malformed> {
    tracing::warn!(pod = %api.key(), %error, "the requests of a pod cannot be read: they do not count on its node");
    let mut api = api.clone();
    if let Some(spec) = &mut api.spec {
        let init = spec.init_containers.iter_mut().flatten();
        for container in init.chain(&mut spec.containers) {
            container.resources = None;
        }
        (spec.resources, spec.overhead) = (None, None);
    }
    if let Some(status) = &mut api.status {
        (status.container_statuses, status.init_container_statuses) = (None, None);
        (status.allocated_resources, status.resources) = (None, None);
    }
    Pod::parse(&api)
}

pub(super) fn scheduler_of(pod: &ApiPod) -> &str {
    let name = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.scheduler_name.as_deref());
    name.filter(|name| !name.is_empty())
        .unwrap_or(DEFAULT_SCHEDULER)
}

fn uid(pod: &ApiPod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

fn nominated(pod: &ApiPod) -> &str {
    let status = pod.status.as_ref();
    let node = status.and_then(|status| status.nominated_node_name.as_deref());
    node.unwrap_or_default()
}

pub(super) fn is_leaving(pod: &ApiPod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}
