//! Ports of pods: claims, refusals, records, and races of requests.

use dormouse_cni::message::PortProtocol;

use super::*;

/// Rounds of a race.
const ROUNDS: usize = 300;

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
        let added = scope.spawn(|| pods.iter().map(|pod| ports.add(pod, || true)).collect());
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
    let error = ports.add(&pod(1), || true).unwrap_err();
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
    assert!(ports.claim(&other).is_ok());
}

#[test]
fn a_pod_whose_ports_are_not_served_has_none() {
    let state = tempfile::tempdir().unwrap();
    let ports = HostPorts::open("n1", state.path()).unwrap();
    drop(ports.follow(&[]));
    let pod = pod(1);
    std::thread::scope(|scope| {
        let added = scope.spawn(|| ports.add(&pod, || true));
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

#[test]
fn a_pod_that_is_removed_while_it_gets_its_ports_has_none() {
    let state = tempfile::tempdir().unwrap();
    let ports = HostPorts::open("n1", state.path()).unwrap();
    drop(ports.follow(&[]));
    let pod = pod(1);
    // A removal before the ports were claimed found none.
    ports.remove(pod.address);
    let error = ports.add(&pod, || false).unwrap_err();
    assert!(matches!(error, HostPortError::Gone), "{error}");
    assert!(ports.records.read().unwrap().is_empty());
    let changes: Vec<_> = ports
        .follow(&[])
        .into_iter()
        .map(|update| update.changes)
        .collect();
    let expected = [objects::applied("n1", &pod), objects::deleted("n1", &pod)];
    assert_eq!(changes, expected);
    // It does not take the ports of the next pod with this address.
    let next = with_port(1, 9090, None);
    let error = ports.add(&pod, || {
        ports.remove(pod.address);
        drop(ports.claim(&next));
        false
    });
    assert!(error.is_err());
    let left = ports.records.read().unwrap();
    assert_eq!(left, BTreeMap::from([(next.address, next)]));
}

#[test]
fn changes_are_passed_on_in_the_order_of_requests_that_race() {
    let state = tempfile::tempdir().unwrap();
    let ports = HostPorts::open("n1", state.path()).unwrap();
    drop(ports.follow(&[]));
    let pod = pod(1);
    for _ in 0..ROUNDS {
        let mut changes = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(ports.add(&pod, || true)));
            // As soon as the pod is known.
            while !ports.state.lock().pods.contains_key(&pod.address) {
                std::hint::spin_loop();
            }
            ports.remove(pod.address);
            while changes.len() < 2 {
                let updates = ports.follow(&[]).into_iter();
                changes.extend(updates.map(|update| update.changes));
            }
        });
        let expected = [objects::applied("n1", &pod), objects::deleted("n1", &pod)];
        assert_eq!(changes, expected);
    }
}
