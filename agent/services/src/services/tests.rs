//! Memory: deleted objects leave nothing behind.

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::change::{Event, Object};
use crate::node::NodePortAddresses;

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: Some("ns".to_owned()),
        name: Some(name.to_owned()),
        labels: Some([("kubernetes.io/service-name".to_owned(), "a".to_owned())].into()),
        ..ObjectMeta::default()
    }
}

#[test]
fn deleted_objects_leave_nothing_behind() {
    let node = Node {
        name: "node-a".to_owned(),
        addresses: NodeAddresses {
            primary: Vec::new(),
            local: Vec::new(),
        },
        pod_ranges: Vec::new(),
        service_ranges: Vec::new(),
        node_port_addresses: NodePortAddresses::Primary,
        masquerade_all: false,
    };
    let mut services = Services::new(node, Strictness::KubeProxy);
    let service = Service {
        metadata: named("a"),
        spec: Some(ServiceSpec {
            cluster_ip: Some("fd00::1".to_owned()),
            ..ServiceSpec::default()
        }),
        status: None,
    };
    let slice = EndpointSlice {
        metadata: named("s"),
        address_type: "IPv6".to_owned(),
        ..EndpointSlice::default()
    };
    let objects = [Object::Service(&service), Object::EndpointSlice(&slice)];
    for object in objects {
        services.apply(&Event::Applied(object));
    }
    services.sync();
    let space = &services.namespaces["ns"];
    assert_eq!((space.entries.len(), space.owners.len()), (1, 1));
    for object in objects {
        services.apply(&Event::Deleted(object));
    }
    services.sync();
    assert!(services.namespaces.is_empty());
    assert_eq!(services.table, Table::default());
}
