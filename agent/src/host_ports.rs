//! Ports of the node that pods have (`hostPort`). Each is a Service of its own, which Kubernetes does not know, with one endpoint and
//! externalTrafficPolicy Local: so the data path serves it as a node port, with the client's address. A record per pod, in the state
//! folder, outlives the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::mpsc as blocking;
use std::time::{Duration, SystemTime};

use dormouse_agent_services::ServiceKey;
use dormouse_cni::message::{PodName, PortMapping};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::source::object::Change;

mod objects;
mod records;
mod verdict;

use records::Records;
pub use verdict::verdict;

/// The folder of the records, in the node's state folder.
pub const FOLDER: &str = "host-ports";
/// Time limit until new ports are served: a change of Services takes milliseconds.
const SERVED_MAX: Duration = Duration::from_secs(10);

/// A pod with ports of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPorts {
    /// Its IPv6 address, which names the record.
    pub address: Ipv6Addr,
    /// Its IPv4 address, if it has one.
    pub address4: Option<Ipv4Addr>,
    /// Its name, if a kubelet starts it.
    pub pod: Option<PodName>,
    /// Its ports.
    pub ports: Vec<PortMapping>,
    /// When it got them, in seconds of Unix time: the oldest has a port that several claim.
    pub since_s: i64,
}

impl PodPorts {
    /// The ports of a pod from now on.
    pub fn now(
        (address, address4): (Ipv6Addr, Option<Ipv4Addr>),
        pod: Option<PodName>,
        ports: Vec<PortMapping>,
    ) -> Self {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self {
            address,
            address4,
            pod,
            ports,
            since_s: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        }
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let v4 = self.address4.map(IpAddr::V4);
        [IpAddr::V6(self.address)].into_iter().chain(v4)
    }
}

impl fmt::Display for PodPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pod {
            Some(pod) => write!(f, "pod {}/{}", pod.namespace, pod.name),
            None => write!(f, "the pod with address {}", self.address),
        }
    }
}

/// Why a pod does not get its ports.
#[derive(Debug, thiserror::Error)]
pub enum HostPortError {
    /// The agent serves no Services, by which ports are served.
    #[error("this node serves no Services")]
    NoServices,
    /// The pod has no address of a family.
    #[error("the pod has no address of the family of hostIP {0}")]
    Family(IpAddr),
    /// A port's address is not the node's.
    #[error("hostIP {0} is no address of this node")]
    Elsewhere(IpAddr),
    /// Another pod, or a Service, has the port.
    #[error("port {port}/{protocol} of the node is taken by {owner}")]
    Taken {
        /// The port.
        port: u16,
        /// Its protocol.
        protocol: String,
        /// The pod or the Service.
        owner: String,
    },
    /// The data path could not serve a port.
    #[error("the pod's ports could not be programmed: {0}")]
    NotProgrammed(String),
    /// The record cannot be written.
    #[error("failed to record the pod's ports")]
    Record(#[source] io::Error),
    /// Services did not come into force in time.
    #[error("the pod's ports are not served yet")]
    Late,
    /// The pod was removed while it got its ports.
    #[error("the pod was removed before its ports were served")]
    Gone,
}

/// Changes of a pod's ports, for the synchronization of Services.
#[derive(Debug)]
pub struct Update {
    /// The changed objects.
    pub changes: Vec<Change>,
    /// Who waits until they are programmed.
    pub waiting: Waiting,
}

/// A request that waits until a pod's ports are served.
#[derive(Debug)]
pub struct Waiting {
    /// The Services of the ports; none: they are removed.
    pub services: Vec<ServiceKey>,
    answer: blocking::SyncSender<Result<(), HostPortError>>,
}

impl Waiting {
    /// Ends the wait.
    pub fn end(self, verdict: Result<(), HostPortError>) {
        // No ADD waits for the ports of a pod that an earlier agent wired.
        if let Err(blocking::TrySendError::Disconnected(Err(error))) = self.answer.try_send(verdict)
        {
            tracing::warn!(%error, "ports of the node of a pod");
        }
    }
}

/// The outcome of a change, when it is programmed.
type Served = blocking::Receiver<Result<(), HostPortError>>;

/// The ports of the node's pods.
#[derive(Debug)]
pub struct HostPorts {
    node: String,
    records: Records,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<Ipv6Addr, PodPorts>,
    /// Changes that have not been taken: no more than pods with ports were added or removed meanwhile.
    updates: Vec<Update>,
    /// The node's addresses, once changes are taken.
    local: Option<Vec<IpAddr>>,
}

impl HostPorts {
    /// Reads the records of the node with this name. No pod gets ports before they are followed.
    pub fn open(node: &str, state_dir: &Path) -> io::Result<Self> {
        let records = Records::new(state_dir.join(FOLDER));
        let state = State {
            pods: records.read()?,
            ..State::default()
        };
        Ok(Self {
            node: node.to_owned(),
            records,
            state: Mutex::new(state),
            changed: Notify::new(),
        })
    }

    /// Serves the recorded ports of the pods that live, and removes the records of others.
    pub fn recover(&self, living: &BTreeSet<Ipv6Addr>) {
        let known: Vec<_> = self.state.lock().pods.values().cloned().collect();
        for pod in known {
            if living.contains(&pod.address) {
                drop(self.queue(&mut self.state.lock(), &pod));
            } else {
                self.remove(pod.address);
            }
        }
    }

    /// From now on changes are taken, and pods get ports, at these addresses of the node. Returns the changes until now.
    pub fn follow(&self, local: &[IpAddr]) -> Vec<Update> {
        let mut state = self.state.lock();
        state.local = Some(local.to_owned());
        mem::take(&mut state.updates)
    }

    /// Changes the node's addresses. Pods keep the ports that they have.
    pub fn set_addresses(&self, local: &[IpAddr]) {
        self.state.lock().local = Some(local.to_owned());
    }

    /// The next changes. Cancel safe.
    pub async fn changed(&self) -> Vec<Update> {
        loop {
            let updates = mem::take(&mut self.state.lock().updates);
            if !updates.is_empty() {
                return updates;
            }
            self.changed.notified().await;
        }
    }

    /// Whether the agent serves Services, by which ports are served.
    pub fn has_services(&self) -> bool {
        self.state.lock().local.is_some()
    }

    /// Gives a pod its ports; returns when they are served. After an error it has none. `is_wired`: whether the pod is there still. A
    /// removal that begins after this was asked finds the ports here.
    pub fn add(
        &self,
        pod: &PodPorts,
        is_wired: impl FnOnce() -> bool,
    ) -> Result<(), HostPortError> {
        if pod.ports.is_empty() {
            return Ok(());
        }
        objects::check(pod)?;
        let served = self.claim(pod)?;
        let served = if is_wired() {
            let served = served.recv_timeout(SERVED_MAX);
            served.unwrap_or(Err(HostPortError::Late))
        } else {
            Err(HostPortError::Gone)
        };
        if served.is_err() {
            self.remove_if(pod.address, |held| held == pod);
        }
        served
    }

    /// Records the pod and begins to serve its ports, unless one is at no address of this node or another pod has it.
    fn claim(&self, pod: &PodPorts) -> Result<Served, HostPortError> {
        let mut state = self.state.lock();
        let local = state.local.as_ref().ok_or(HostPortError::NoServices)?;
        let mut named = pod.ports.iter().filter_map(|port| port.address);
        if let Some(other) = named.find(|at| !at.is_unspecified() && !local.contains(at)) {
            return Err(HostPortError::Elsewhere(other));
        }
        let mut others = state.pods.values();
        let taken = others.find_map(|other| Some((other, objects::shared(other, pod)?)));
        if let Some((owner, (port, protocol))) = taken {
            return Err(HostPortError::Taken {
                port,
                protocol: protocol.name().to_owned(),
                owner: owner.to_string(),
            });
        }
        self.records.write(pod).map_err(HostPortError::Record)?;
        state.pods.insert(pod.address, pod.clone());
        Ok(self.queue(&mut state, pod))
    }

    /// Takes the ports of the pod with this address, if it has any.
    pub fn remove(&self, address: Ipv6Addr) {
        self.remove_if(address, |_| true);
    }

    fn remove_if(&self, address: Ipv6Addr, is_meant: impl FnOnce(&PodPorts) -> bool) {
        let mut state = self.state.lock();
        if !state.pods.get(&address).is_some_and(is_meant) {
            return;
        }
        if let Some(pod) = state.pods.remove(&address) {
            self.records.remove(address);
            let deleted = objects::deleted(&self.node, &pod);
            drop(self.send(&mut state, deleted, Vec::new()));
        }
    }

    /// Begins to serve a pod's ports.
    fn queue(&self, state: &mut State, pod: &PodPorts) -> Served {
        let applied = objects::applied(&self.node, pod);
        self.send(state, applied, objects::keys(pod))
    }

    /// Passes changes on in the order of the changes of the state: its lock is held for both.
    fn send(&self, state: &mut State, changes: Vec<Change>, services: Vec<ServiceKey>) -> Served {
        let (answer, receiver) = blocking::sync_channel(1);
        let waiting = Waiting { services, answer };
        state.updates.push(Update { changes, waiting });
        self.changed.notify_one();
        receiver
    }
}

#[cfg(test)]
mod tests;
