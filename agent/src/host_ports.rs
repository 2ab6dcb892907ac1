//! Ports of the node that pods have (`hostPort`). Each is a Service of its own, which Kubernetes does not know, with one endpoint and
//! externalTrafficPolicy Local: so the data path serves it as a node port, with the client's address. A record per pod, in the state
//! folder, outlives the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::mpsc as blocking;
use std::time::{Duration, SystemTime};

use dormouse_cni::message::{PodName, PortMapping};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::source::object::Change;

mod objects;

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

/// Why a pod does not get its ports.
#[derive(Debug, thiserror::Error)]
pub enum HostPortError {
    /// The agent serves no Services, by which ports are served.
    #[error("this node serves no Services")]
    NoServices,
    /// The pod has no address of a family.
    #[error("the pod has no address of the family of hostIP {0}")]
    Family(IpAddr),
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
    /// Dropped when they are programmed; nothing is ever sent.
    pub served: blocking::SyncSender<()>,
}

/// The ports of the node's pods.
#[derive(Debug)]
pub struct HostPorts {
    node: String,
    folder: PathBuf,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<Ipv6Addr, PodPorts>,
    /// Changes that have not been taken: no more than pods with ports were added or removed meanwhile.
    updates: Vec<Update>,
    /// Whether changes are taken.
    has_services: bool,
}

impl HostPorts {
    /// Reads the records of the node with this name. No pod gets ports before they are followed.
    pub fn open(node: &str, state_dir: &Path) -> io::Result<Self> {
        let folder = state_dir.join(FOLDER);
        let state = State {
            pods: read(&folder)?,
            ..State::default()
        };
        Ok(Self {
            node: node.to_owned(),
            folder,
            state: Mutex::new(state),
            changed: Notify::new(),
        })
    }

    /// Serves the recorded ports of the pods that live, and removes the records of others.
    pub fn recover(&self, living: &BTreeSet<Ipv6Addr>) {
        let known: Vec<_> = self.state.lock().pods.values().cloned().collect();
        for pod in known {
            if living.contains(&pod.address) {
                drop(self.send(objects::applied(&self.node, &pod)));
            } else {
                self.remove(pod.address);
            }
        }
    }

    /// From now on changes are taken, and pods get ports. Returns the changes until now.
    pub fn follow(&self) -> Vec<Update> {
        let mut state = self.state.lock();
        state.has_services = true;
        mem::take(&mut state.updates)
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
        self.state.lock().has_services
    }

    /// Gives a pod its ports; returns when they are served.
    pub fn add(&self, pod: PodPorts) -> Result<(), HostPortError> {
        if pod.ports.is_empty() {
            return Ok(());
        }
        objects::check(&pod)?;
        if !self.has_services() {
            return Err(HostPortError::NoServices);
        }
        write(&self.folder, &pod).map_err(HostPortError::Record)?;
        let changes = objects::applied(&self.node, &pod);
        self.state.lock().pods.insert(pod.address, pod);
        // The other end is dropped when the ports are served.
        match self.send(changes).recv_timeout(SERVED_MAX) {
            Err(blocking::RecvTimeoutError::Disconnected) => Ok(()),
            _ => Err(HostPortError::Late),
        }
    }

    /// Takes the ports of the pod with this address, if it has any.
    pub fn remove(&self, address: Ipv6Addr) {
        let Some(pod) = self.state.lock().pods.remove(&address) else {
            return;
        };
        if let Err(error) = fs::remove_file(path(&self.folder, address)) {
            tracing::warn!(%error, %address, "failed to remove the record of a pod's ports of the node; the next agent removes it");
        }
        drop(self.send(objects::deleted(&self.node, &pod)));
    }

    fn send(&self, changes: Vec<Change>) -> blocking::Receiver<()> {
        let (served, receiver) = blocking::sync_channel(0);
        self.state.lock().updates.push(Update { changes, served });
        self.changed.notify_one();
        receiver
    }
}

fn path(folder: &Path, address: Ipv6Addr) -> PathBuf {
    folder.join(format!("{:x}.json", u128::from(address)))
}

/// Writes a record. It need not survive a power failure: after a boot there are no pods.
fn write(folder: &Path, pod: &PodPorts) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let path = path(folder, pod.address);
    let fresh = path.with_extension("new");
    fs::write(&fresh, serde_json::to_vec(pod)?)?;
    fs::rename(fresh, path)
}

fn read(folder: &Path) -> io::Result<BTreeMap<Ipv6Addr, PodPorts>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries?,
    };
    let mut pods = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        match serde_json::from_slice::<PodPorts>(&fs::read(&path)?) {
            Ok(pod) => drop(pods.insert(pod.address, pod)),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "a record of a pod's ports of the node cannot be read: the pod has none");
            }
        }
    }
    Ok(pods)
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

    #[test]
    fn ports_outlive_the_agent_and_those_of_gone_pods_do_not() {
        let state = tempfile::tempdir().unwrap();
        let ports = HostPorts::open("n1", state.path()).unwrap();
        assert!(ports.follow().is_empty());
        let (a, b) = (pod(1), pod(2));
        std::thread::scope(|scope| {
            let added = scope.spawn(|| {
                ports.add(a.clone()).unwrap();
                ports.add(b.clone()).unwrap();
            });
            while !added.is_finished() {
                // Dropped: served.
                drop(ports.follow());
                std::thread::yield_now();
            }
            added.join().unwrap();
        });
        let ports = HostPorts::open("n1", state.path()).unwrap();
        ports.recover(&BTreeSet::from([a.address]));
        let taken = ports.follow().into_iter();
        let changes: Vec<_> = taken.map(|update| update.changes).collect();
        let expected = [objects::applied("n1", &a), objects::deleted("n1", &b)];
        assert_eq!(changes, expected);
        let left = read(&ports.folder).unwrap();
        assert_eq!(left, BTreeMap::from([(a.address, a)]));
    }

    #[test]
    fn without_services_no_pod_gets_ports() {
        let state = tempfile::tempdir().unwrap();
        let ports = HostPorts::open("n1", state.path()).unwrap();
        let error = ports.add(pod(1)).unwrap_err();
        assert!(matches!(error, HostPortError::NoServices));
        assert!(read(&ports.folder).unwrap().is_empty());
    }
}
