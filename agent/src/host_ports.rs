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
                drop(self.send(objects::applied(&self.node, &pod), objects::keys(&pod)));
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

    /// Gives a pod its ports; returns when they are served. After an error it has none.
    pub fn add(&self, pod: PodPorts) -> Result<(), HostPortError> {
        if pod.ports.is_empty() {
            return Ok(());
        }
        objects::check(&pod)?;
        let (address, changes) = (pod.address, objects::applied(&self.node, &pod));
        let services = objects::keys(&pod);
        self.claim(pod)?;
        let served = self.send(changes, services).recv_timeout(SERVED_MAX);
        let served = served.unwrap_or(Err(HostPortError::Late));
        if served.is_err() {
            self.remove(address);
        }
        served
    }

    /// Records the pod, unless a port of it is at no address of this node or another pod has it.
    fn claim(&self, pod: PodPorts) -> Result<(), HostPortError> {
        let mut state = self.state.lock();
        let local = state.local.as_ref().ok_or(HostPortError::NoServices)?;
        let mut named = pod.ports.iter().filter_map(|port| port.address);
        if let Some(other) = named.find(|at| !at.is_unspecified() && !local.contains(at)) {
            return Err(HostPortError::Elsewhere(other));
        }
        let mut others = state.pods.values();
        let taken = others.find_map(|other| Some((other, objects::shared(other, &pod)?)));
        if let Some((owner, (port, protocol))) = taken {
            return Err(HostPortError::Taken {
                port,
                protocol: protocol.name().to_owned(),
                owner: owner.to_string(),
            });
        }
        self.records.write(&pod).map_err(HostPortError::Record)?;
        state.pods.insert(pod.address, pod);
        Ok(())
    }

    /// Takes the ports of the pod with this address, if it has any.
    pub fn remove(&self, address: Ipv6Addr) {
        let Some(pod) = self.state.lock().pods.remove(&address) else {
            return;
        };
        self.records.remove(address);
        drop(self.send(objects::deleted(&self.node, &pod), Vec::new()));
    }

    fn send(
        &self,
        changes: Vec<Change>,
        services: Vec<ServiceKey>,
    ) -> blocking::Receiver<Result<(), HostPortError>> {
        let (answer, receiver) = blocking::sync_channel(1);
        let waiting = Waiting { services, answer };
        self.state.lock().updates.push(Update { changes, waiting });
        self.changed.notify_one();
        receiver
    }
}

#[cfg(test)]
mod tests {
    use dormouse_cni::message::PortProtocol;

    use super::*;

    pub(super) fn pod(suffix: u16) -> PodPorts {
        let address = format!("2001:db8:d0:0:0:1:1:{suffix:x}").parse().unwrap();
        let address4 = Some("192.0.2.7".parse().unwrap());
        let name = PodName {
            namespace: "shop".into(),
            name: "web".into(),
            uid: None,
        };
        let port = PortMapping {
            host: 8080,
            pod: 80,
            protocol: PortProtocol::Tcp,
            address: None,
        };
        PodPorts::now((address, address4), Some(name), vec![port])
    }

    /// Adds pods while their ports are served at this address of the node.
    fn add_all(ports: &HostPorts, pods: &[PodPorts]) -> Vec<Result<(), HostPortError>> {
        let local = ["192.0.2.1".parse().unwrap()];
        drop(ports.follow(&local));
        std::thread::scope(|scope| {
            let added = scope.spawn(|| pods.iter().map(|pod| ports.add(pod.clone())).collect());
            while !added.is_finished() {
                for update in ports.follow(&local) {
                    update.waiting.end(Ok(()));
                }
                std::thread::yield_now();
            }
            added.join().unwrap()
        })
    }

    /// A pod with this port of the node, at this address.
    pub(super) fn with_port(suffix: u16, host: u16, at: Option<&str>) -> PodPorts {
        let mut pod = pod(suffix);
        pod.ports[0].host = host;
        pod.ports[0].address = at.map(|at| at.parse().unwrap());
        pod
    }

    #[test]
    fn ports_outlive_the_agent_and_those_of_gone_pods_do_not() {
        let state = tempfile::tempdir().unwrap();
        let ports = HostPorts::open("n1", state.path()).unwrap();
        let (a, b) = (pod(1), with_port(2, 8081, None));
        for added in add_all(&ports, &[a.clone(), b.clone()]) {
            added.unwrap();
        }
        let ports = HostPorts::open("n1", state.path()).unwrap();
        ports.recover(&BTreeSet::from([a.address]));
        let taken = ports.follow(&[]).into_iter();
        let changes: Vec<_> = taken.map(|update| update.changes).collect();
        let expected = [objects::applied("n1", &a), objects::deleted("n1", &b)];
        assert_eq!(changes, expected);
        let left = ports.records.read().unwrap();
        assert_eq!(left, BTreeMap::from([(a.address, a)]));
    }

    #[test]
    fn without_services_no_pod_gets_ports() {
        let state = tempfile::tempdir().unwrap();
        let ports = HostPorts::open("n1", state.path()).unwrap();
        let error = ports.add(pod(1)).unwrap_err();
        assert!(matches!(error, HostPortError::NoServices));
        assert!(ports.records.read().unwrap().is_empty());
    }

    #[test]
    fn a_port_has_one_pod_until_that_goes() {
        let state = tempfile::tempdir().unwrap();
        let ports = HostPorts::open("n1", state.path()).unwrap();
        let pods = [
            pod(1),
            pod(2),
            with_port(3, 8080, Some("192.0.2.1")),
            with_port(4, 8080, Some("::")),
        ];
        let mut added = add_all(&ports, &pods).into_iter();
        added.next().unwrap().unwrap();
        for refused in added {
            let text = refused.unwrap_err().to_string();
            assert_eq!(text, "port 8080/TCP of the node is taken by pod shop/web");
        }
        assert_eq!(ports.records.read().unwrap().len(), 1);
        ports.remove(pods[0].address);
        // One of each family does not meet the other.
        let [_, _, v4, v6] = pods;
        for added in add_all(&ports, &[v4, v6]) {
            added.unwrap();
        }
    }

    #[test]
    fn a_port_at_an_address_that_is_not_the_nodes_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let ports = HostPorts::open("n1", state.path()).unwrap();
        let other = with_port(1, 8080, Some("192.0.2.2"));
        let error = add_all(&ports, std::slice::from_ref(&other))
            .remove(0)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "hostIP 192.0.2.2 is no address of this node"
        );
        assert!(ports.records.read().unwrap().is_empty());
        ports.set_addresses(&["192.0.2.2".parse().unwrap()]);
        assert!(ports.claim(other).is_ok());
    }

    #[test]
    fn a_pod_whose_ports_are_not_served_has_none() {
        let state = tempfile::tempdir().unwrap();
        let ports = HostPorts::open("n1", state.path()).unwrap();
        drop(ports.follow(&[]));
        let pod = pod(1);
        std::thread::scope(|scope| {
            let added = scope.spawn(|| ports.add(pod.clone()));
            let mut updates = Vec::new();
            while updates.is_empty() {
                updates = ports.follow(&[]);
                std::thread::yield_now();
            }
            for update in updates {
                let full = HostPortError::NotProgrammed("full".into());
                update.waiting.end(Err(full));
            }
            let error = added.join().unwrap().unwrap_err();
            assert!(error.to_string().ends_with("full"), "{error}");
        });
        assert!(ports.records.read().unwrap().is_empty());
        let deleted = ports.follow(&[]).remove(0).changes;
        assert_eq!(deleted, objects::deleted("n1", &pod));
    }
}
