//! Whether the ports of a pod are served, once its Services were given to the data path. Pure.

use dormouse_agent_datapath::DatapathError;
use dormouse_agent_services::{PortId, ServiceKey, ServicePort, Services};

use super::HostPortError;

/// Fails unless each of these Services answers at all its places; `shed`: service ports that could not be programmed, and why.
pub fn verdict(
    services: &Services,
    keys: &[ServiceKey],
    shed: &[(PortId, DatapathError)],
) -> Result<(), HostPortError> {
    for key in keys {
        let ports = services.ports_of(key);
        if ports.is_empty() {
            let reason = format!("{key} has no valid port");
            return Err(HostPortError::NotProgrammed(reason));
        }
        for port in ports {
            check(services, port, (keys, shed))?;
        }
    }
    Ok(())
}

fn check(
    services: &Services,
    port: &ServicePort,
    (own, shed): (&[ServiceKey], &[(PortId, DatapathError)]),
) -> Result<(), HostPortError> {
    if let Some((_, reason)) = shed.iter().find(|(id, _)| *id == port.id) {
        return Err(HostPortError::NotProgrammed(reason.to_string()));
    }
    for vip in services.vips_of(port) {
        // Also one that would lose it: a port at a named address goes before a node port.
        let mut others = services.claimants(&vip);
        if let Some(owner) = others.find(|other| !own.contains(&other.id.service)) {
            return Err(HostPortError::Taken {
                port: vip.port,
                protocol: vip.protocol.to_string(),
                owner: format!("Service {}", owner.id.service),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dormouse_agent_services::{Node, NodeAddresses, NodePortAddresses, Strictness};

    use super::super::{PodPorts, objects, tests::with_port};
    use super::*;

    fn services(pods: &[PodPorts]) -> Services {
        let own = ["2001:db8::1", "192.0.2.1"].map(|text| text.parse().unwrap());
        let node = Node {
            name: "n1".to_owned(),
            addresses: NodeAddresses {
                primary: own.to_vec(),
                local: own.to_vec(),
            },
            pod_ranges: Vec::new(),
            service_ranges: Vec::new(),
            node_port_addresses: NodePortAddresses::Primary,
            masquerade_all: false,
        };
        let mut services = Services::new(node, Strictness::KubeProxy);
        for change in pods.iter().flat_map(|pod| objects::applied("n1", pod)) {
            services.apply(&change.event());
        }
        services.sync();
        services
    }

    #[test]
    fn a_port_that_has_another_claimant_or_no_room_is_not_served() {
        let (pod, other) = (with_port(1, 80, None), with_port(2, 80, None));
        let keys = objects::keys(&pod);
        verdict(&services(std::slice::from_ref(&pod)), &keys, &[]).unwrap();
        for at in [None, Some("192.0.2.1"), Some("::")] {
            let claimed = services(&[pod.clone(), with_port(2, 80, at)]);
            let error = verdict(&claimed, &keys, &[]).unwrap_err().to_string();
            assert!(
                error.starts_with("port 80/TCP of the node is taken"),
                "{error}"
            );
        }
        let mut both = other.clone();
        both.ports.extend(with_port(2, 80, Some("192.0.2.1")).ports);
        let own = services(std::slice::from_ref(&both));
        verdict(&own, &objects::keys(&both), &[]).unwrap();

        let shed = own.ports_of(&objects::keys(&other)[0]).iter();
        let shed: Vec<_> = shed
            .map(|port| (port.id.clone(), DatapathError::NoCluster))
            .collect();
        let error = verdict(&own, &objects::keys(&both), &shed).unwrap_err();
        assert!(matches!(error, HostPortError::NotProgrammed(_)));
        let gone = verdict(&services(&[]), &keys, &[]).unwrap_err();
        assert!(matches!(gone, HostPortError::NotProgrammed(_)));
    }
}
