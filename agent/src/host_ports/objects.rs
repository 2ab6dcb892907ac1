//! The Service and the EndpointSlice of a pod's port of the node. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dormouse_agent_services::ServiceKey;
use dormouse_cni::message::{PortMapping, PortProtocol};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use dormouse_agent_services::slice::SERVICE_LABEL;

use super::{HostPortError, PodPorts};
use crate::addresses::DISCARD;
use crate::source::object::{Change, Object};

/// The namespace of pods that no kubelet starts.
const NO_NAMESPACE: &str = "host-ports";
/// Cluster IPs, which a Service needs and which no packet has: those of [`DISCARD`], and of 240.0.0.0/4 (RFC 1112 4).
const RESERVED: u32 = 0xf000_0000;
/// The bit of a cluster IP of ports at named addresses, which are Services beside those at all addresses.
const NAMED: u32 = 1 << 27;

/// One Service: a port of the pod that is a port of the node, either at all addresses or at named ones.
type Place = (u16, PortProtocol, u16, bool);

/// Fails if the pod lacks an address of a family that its ports need.
pub(super) fn check(pod: &PodPorts) -> Result<(), HostPortError> {
    let named = pod.ports.iter().filter_map(|port| port.address);
    let has = |wanted: &IpAddr| pod.addresses().any(|own| own.is_ipv4() == wanted.is_ipv4());
    let lacking = named.into_iter().find(|wanted| !has(wanted));
    lacking.map_or(Ok(()), |wanted| Err(HostPortError::Family(wanted)))
}

/// A port that both pods claim, at an address that both claim.
pub(super) fn shared(one: &PodPorts, other: &PodPorts) -> Option<(u16, PortProtocol)> {
    let mut ports = one.ports.iter();
    let shared = ports.find(|port| {
        let same = |also: &&PortMapping| (also.host, also.protocol) == (port.host, port.protocol);
        let mut others = other.ports.iter().filter(same);
        others.any(|also| places(one, port).any(|at| places(other, also).any(|too| meets(at, too))))
    });
    shared.map(|port| (port.host, port.protocol))
}

/// Where a port of a pod is: the families, and the one address there if it is not at all of them.
fn places(pod: &PodPorts, port: &PortMapping) -> impl Iterator<Item = (bool, Option<IpAddr>)> {
    let at = port.address;
    let own = pod.addresses().map(|own| own.is_ipv4());
    let served = own.filter(move |is_ipv4| at.is_none_or(|at| at.is_ipv4() == *is_ipv4));
    served.map(move |is_ipv4| (is_ipv4, at.filter(|at| !at.is_unspecified())))
}

fn meets(one: (bool, Option<IpAddr>), other: (bool, Option<IpAddr>)) -> bool {
    one.0 == other.0 && (one.1.is_none() || other.1.is_none() || one.1 == other.1)
}

/// The keys of the ports' Services.
pub(super) fn keys(pod: &PodPorts) -> Vec<ServiceKey> {
    let places = grouped(pod).into_keys();
    let key = |place| ServiceKey {
        namespace: namespace(pod).into(),
        name: name(pod, place).into(),
    };
    places.map(key).collect()
}

/// The changes that begin to serve the ports.
pub(super) fn applied(node: &str, pod: &PodPorts) -> Vec<Change> {
    objects(node, pod).map(Change::Applied).collect()
}

/// The changes that end it.
pub(super) fn deleted(node: &str, pod: &PodPorts) -> Vec<Change> {
    objects(node, pod).map(Change::Deleted).collect()
}

fn objects(node: &str, pod: &PodPorts) -> impl Iterator<Item = Object> {
    grouped(pod)
        .into_iter()
        .flat_map(move |(place, addresses)| of_place(node, pod, place, &addresses))
}

/// The ports by Service, with the addresses that were named.
fn grouped(pod: &PodPorts) -> BTreeMap<Place, BTreeSet<Option<IpAddr>>> {
    let mut places: BTreeMap<Place, BTreeSet<Option<IpAddr>>> = BTreeMap::new();
    for port in &pod.ports {
        let PortMapping {
            host,
            pod,
            protocol,
            address,
        } = *port;
        let is_named = address.is_some_and(|address| !address.is_unspecified());
        let place = places.entry((host, protocol, pod, is_named)).or_default();
        place.insert(address);
    }
    places
}

fn of_place(
    node: &str,
    pod: &PodPorts,
    place: Place,
    at: &BTreeSet<Option<IpAddr>>,
) -> Vec<Object> {
    let name = name(pod, place);
    let is_served = |own: &IpAddr| {
        let mut at = at.iter();
        at.any(|at| at.is_none_or(|at| at.is_ipv4() == own.is_ipv4()))
    };
    let own: Vec<_> = pod.addresses().filter(is_served).collect();
    let mut all = vec![service(pod, &name, place, at, &own).into()];
    all.extend(
        own.iter()
            .map(|own| slice(node, pod, &name, place, *own).into()),
    );
    all
}

/// A name that no Service in Kubernetes can have.
fn name(pod: &PodPorts, (host, protocol, target, is_named): Place) -> String {
    let owner = pod.pod.as_ref().map_or("pod", |pod| pod.name.as_str());
    let (protocol, address) = (protocol.name(), pod.address);
    let at = if is_named { "@" } else { "" };
    format!("{owner}:{host}{at}/{protocol}>{target}[{address}]")
}

fn namespace(pod: &PodPorts) -> &str {
    let named = pod.pod.as_ref();
    named.map_or(NO_NAMESPACE, |pod| pod.namespace.as_str())
}

fn metadata(pod: &PodPorts, name: String) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(namespace(pod).to_owned()),
        name: Some(name),
        creation_timestamp: Timestamp::from_second(pod.since_s).ok().map(Time),
        ..ObjectMeta::default()
    }
}

fn service(
    pod: &PodPorts,
    name: &str,
    (host, protocol, _, is_named): Place,
    at: &BTreeSet<Option<IpAddr>>,
    own: &[IpAddr],
) -> Service {
    let cluster_ips: Vec<_> = own
        .iter()
        .map(|own| unused(*own, is_named).to_string())
        .collect();
    let families = own.iter().map(|own| family(*own).to_owned());
    let external = at.iter().flatten().filter(|_| is_named);
    let port = ServicePort {
        port: host.into(),
        node_port: (!is_named).then_some(host.into()),
        protocol: Some(protocol.name().to_owned()),
        ..ServicePort::default()
    };
    let spec = ServiceSpec {
        type_: Some("NodePort".to_owned()),
        cluster_ip: cluster_ips.first().cloned(),
        cluster_ips: Some(cluster_ips),
        ip_families: Some(families.collect()),
        external_ips: Some(external.map(ToString::to_string).collect()),
        external_traffic_policy: Some("Local".to_owned()),
        ports: Some(vec![port]),
        ..ServiceSpec::default()
    };
    Service {
        metadata: metadata(pod, name.to_owned()),
        spec: Some(spec),
        ..Service::default()
    }
}

fn slice(
    node: &str,
    pod: &PodPorts,
    service: &str,
    (_, protocol, target, _): Place,
    own: IpAddr,
) -> EndpointSlice {
    let mut metadata = metadata(pod, format!("{service}-{}", family(own)));
    metadata.labels = Some([(SERVICE_LABEL.to_owned(), service.to_owned())].into());
    let conditions = EndpointConditions {
        ready: Some(true),
        serving: Some(true),
        terminating: Some(false),
    };
    let endpoint = Endpoint {
        addresses: vec![own.to_string()],
        conditions: Some(conditions),
        node_name: Some(node.to_owned()),
        ..Endpoint::default()
    };
    let port = EndpointPort {
        // That of the Service's port, which has none.
        name: Some(String::new()),
        port: Some(target.into()),
        protocol: Some(protocol.name().to_owned()),
        ..EndpointPort::default()
    };
    EndpointSlice {
        metadata,
        address_type: family(own).to_owned(),
        endpoints: Some(vec![endpoint]),
        ports: Some(vec![port]),
    }
}

/// The name of an address's family in Kubernetes.
fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// A cluster IP of this pod alone, by the low bits of its own address.
fn unused(own: IpAddr, is_named: bool) -> IpAddr {
    let named = if is_named { NAMED } else { 0 };
    match own {
        IpAddr::V4(own) => Ipv4Addr::from(RESERVED | named | (own.to_bits() & (NAMED - 1))).into(),
        IpAddr::V6(own) => {
            let low = own.to_bits() & u128::from(u32::MAX);
            Ipv6Addr::from(DISCARD.to_bits() | u128::from(named) << 32 | low).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_agent_services::port::{Answer, Set, Source};
    use dormouse_agent_services::{
        Node, NodeAddresses, NodePortAddresses, Protocol, Services, Strictness, Vip,
    };

    use super::super::tests::pod;
    use super::*;

    const NODE: &str = "n1";

    fn services(pod: &PodPorts) -> Services {
        let primary = ["2001:db8::1", "192.0.2.1"].map(|text| text.parse().unwrap());
        let node = Node {
            name: NODE.to_owned(),
            addresses: NodeAddresses {
                primary: primary.to_vec(),
                local: primary.to_vec(),
            },
            pod_ranges: Vec::new(),
            service_ranges: Vec::new(),
            node_port_addresses: NodePortAddresses::Primary,
            masquerade_all: false,
        };
        let mut services = Services::new(node, Strictness::KubeProxy);
        for change in applied(NODE, pod) {
            assert!(services.apply(&change.event()).is_empty());
        }
        assert!(services.sync().problems.is_empty());
        services
    }

    /// The pod's address and port that get connections from outside to this address of the node.
    fn reached(
        services: &Services,
        at: &str,
        port: u16,
        protocol: Protocol,
    ) -> Option<(IpAddr, u16)> {
        let vip = Vip {
            address: at.parse().unwrap(),
            port,
            protocol,
        };
        let found = services.frontend(&vip)?.port;
        assert_eq!(
            found.external_answer(Source::Outside),
            Answer::Backends(Set::Local)
        );
        let backend = found.set(Set::Local).next().unwrap();
        Some((backend.address, backend.port))
    }

    fn mapping(host: u16, target: u16, protocol: PortProtocol, at: Option<&str>) -> PortMapping {
        PortMapping {
            host,
            pod: target,
            protocol,
            address: at.map(|at| at.parse().unwrap()),
        }
    }

    #[test]
    fn a_port_is_at_all_addresses_at_those_of_a_family_or_at_a_named_one() {
        use PortProtocol::{Sctp, Tcp, Udp};
        let mut pod = pod(1);
        pod.ports = vec![
            mapping(80, 8080, Tcp, None),
            mapping(53, 5353, Udp, Some("0.0.0.0")),
            mapping(53, 5354, Udp, Some("::")),
            mapping(9, 10, Sctp, Some("192.0.2.1")),
            mapping(80, 8081, Tcp, Some("198.51.100.1")),
        ];
        check(&pod).unwrap();
        let services = services(&pod);
        let (v6, v4) = (IpAddr::V6(pod.address), IpAddr::V4(pod.address4.unwrap()));
        let at = |address, port, protocol| reached(&services, address, port, protocol);
        assert_eq!(at("2001:db8::1", 80, Protocol::Tcp), Some((v6, 8080)));
        assert_eq!(at("192.0.2.1", 80, Protocol::Tcp), Some((v4, 8080)));
        assert_eq!(at("198.51.100.1", 80, Protocol::Tcp), Some((v4, 8081)));
        assert_eq!(at("192.0.2.1", 53, Protocol::Udp), Some((v4, 5353)));
        assert_eq!(at("2001:db8::1", 53, Protocol::Udp), Some((v6, 5354)));
        assert_eq!(at("192.0.2.1", 9, Protocol::Sctp), Some((v4, 10)));
        assert_eq!(at("2001:db8::1", 9, Protocol::Sctp), None);
        assert_eq!(at("192.0.2.1", 80, Protocol::Udp), None);
    }

    #[test]
    fn what_was_applied_is_deleted() {
        let pod = pod(1);
        let mut services = services(&pod);
        for change in deleted(NODE, &pod) {
            services.apply(&change.event());
        }
        services.sync();
        assert_eq!(services.ports().count(), 0);
    }

    #[test]
    fn two_pods_of_one_name_do_not_share_a_service() {
        let (a, b) = (pod(1), pod(2));
        let names = |pod: &PodPorts| name(pod, (80, PortProtocol::Tcp, 80, false));
        assert_ne!(names(&a), names(&b));
        assert_ne!(
            unused(a.address.into(), false),
            unused(b.address.into(), false)
        );
    }

    #[test]
    fn a_pod_without_ipv4_gets_no_port_at_an_ipv4_address() {
        let mut pod = pod(1);
        pod.address4 = None;
        pod.ports = vec![mapping(80, 80, PortProtocol::Tcp, Some("0.0.0.0"))];
        assert!(matches!(check(&pod), Err(HostPortError::Family(_))));
    }
}
