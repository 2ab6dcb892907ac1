//! Services and EndpointSlices through the API: addresses, node ports, and what Kubernetes refuses.

use std::collections::BTreeSet;

use dormouse_cluster::{ServiceRanges, Services};
use dormouse_command::Exit;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::commands::run_on_screen;
use crate::world::World;

fn service(name: &str, spec: &Value) -> Service {
    let value = json!({"metadata": {"name": name}, "spec": spec});
    serde_json::from_value(value).unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "the values are literals")]
fn web(fields: Value) -> Value {
    let mut spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    spec.as_object_mut()
        .unwrap()
        .extend(fields.as_object().cloned().unwrap());
    spec
}

/// The only cause of a refusal, with its reason.
fn refused(error: kube::Error) -> (String, String) {
    let kube::Error::Api(status) = error else {
        panic!("not refused by the server: {error}");
    };
    let causes = &status.details.as_ref().unwrap().causes;
    assert_eq!(causes.len(), 1, "{causes:?}");
    (
        causes[0].reason.clone(),
        format!("{}: {}", causes[0].field, causes[0].message),
    )
}

fn address(service: &Service) -> String {
    service.spec.as_ref().unwrap().cluster_ip.clone().unwrap()
}

#[tokio::test]
async fn a_service_has_an_address_that_no_other_has_until_it_is_deleted() {
    let world = World::start().await;
    let services: Api<Service> = Api::namespaced(world.kube(), "default");
    let create = async |name: &str, fields: Value| {
        services
            .create(&PostParams::default(), &service(name, &web(fields)))
            .await
    };
    let given = create("a", json!({})).await.unwrap();
    assert!(address(&given).starts_with("fd00:96::"));
    create("b", json!({"clusterIP": "fd00:96::5"}))
        .await
        .unwrap();
    let (reason, text) = refused(
        create("c", json!({"clusterIP": "fd00:96::5"}))
            .await
            .unwrap_err(),
    );
    assert_eq!(reason, "FieldValueInvalid");
    assert!(
        text.ends_with("failed to allocate IP fd00:96::5: provided IP is already allocated"),
        "{text}"
    );
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let fixed = service("c", &web(json!({"clusterIP": "fd00:96::6"})));
    assert_eq!(
        address(&services.create(&dry, &fixed).await.unwrap()),
        "fd00:96::6"
    );
    services
        .create(&PostParams::default(), &fixed)
        .await
        .unwrap();

    let change = Patch::Merge(json!({"spec": {"clusterIP": "fd00:96::7"}}));
    let error = services
        .patch("a", &PatchParams::default(), &change)
        .await
        .unwrap_err();
    assert!(refused(error).1.ends_with("may not change once set"));

    // Another control plane on the same store knows what is taken.
    let ranges = ServiceRanges::parse(&["fd00:96::/108".to_owned()], &[]).unwrap();
    let restarted = Services::new(world.store.clone(), ranges);
    let mut taken = service(
        "d",
        &web(
            json!({"clusterIP": "fd00:96::5", "clusterIPs": ["fd00:96::5"], "ipFamilies": ["IPv6"]}),
        ),
    );
    taken.metadata.namespace = Some("default".to_owned());
    assert!(restarted.create(taken).await.is_err());

    services
        .delete("b", &DeleteParams::default())
        .await
        .unwrap();
    let again = create("c2", json!({"clusterIP": "fd00:96::5"}))
        .await
        .unwrap();
    assert_eq!(address(&again), "fd00:96::5");
    let headless = create("headless", json!({"clusterIP": "None"}))
        .await
        .unwrap();
    assert_eq!(address(&headless), "None");
}

#[tokio::test]
async fn no_service_answers_outside_at_an_address_of_the_control_plane() {
    let world = World::start().await;
    let services: Api<Service> = Api::namespaced(world.kube(), "default");
    for taken in ["2001:db8::c", "fd00:96::5"] {
        let wanted = service("taken", &web(json!({"externalIPs": [taken]})));
        let refused = refused(
            services
                .create(&PostParams::default(), &wanted)
                .await
                .unwrap_err(),
        );
        let why = format!("spec.externalIPs: the address {taken} is in ");
        assert!(refused.1.starts_with(&why), "{refused:?}");
    }
    let free = service("free", &web(json!({"externalIPs": ["192.0.2.7"]})));
    services
        .create(&PostParams::default(), &free)
        .await
        .unwrap();
    let balanced = json!({"status": {"loadBalancer": {"ingress": [{"ip": "2001:db8::c"}]}}});
    let patch = Patch::Merge(&balanced);
    let refused = refused(
        services
            .patch_status("free", &PatchParams::default(), &patch)
            .await
            .unwrap_err(),
    );
    assert!(
        refused.1.starts_with("status.loadBalancer.ingress"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn services_created_concurrently_have_different_addresses_and_node_ports() {
    let world = World::start().await;
    let creations = (0..30).map(|number| {
        let services: Api<Service> = Api::namespaced(world.kube(), "default");
        async move {
            let new = service(&format!("s{number}"), &web(json!({"type": "NodePort"})));
            let made = services.create(&PostParams::default(), &new).await.unwrap();
            let port = made.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].node_port;
            (address(&made), port.unwrap())
        }
    });
    let made = futures::future::join_all(creations).await;
    let addresses: BTreeSet<_> = made.iter().map(|(address, _)| address).collect();
    let ports: BTreeSet<_> = made.iter().map(|(_, port)| *port).collect();
    assert_eq!((addresses.len(), ports.len()), (30, 30));
    assert!(ports.iter().all(|port| (30_000..32_768).contains(port)));
}

#[tokio::test]
async fn a_service_changes_its_type_and_an_apply_keeps_what_was_given() {
    let world = World::start().await;
    let services: Api<Service> = Api::namespaced(world.kube(), "default");
    let apply = async |fields: Value| {
        let manifest = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": web(fields)});
        services
            .patch("web", &PatchParams::apply("test"), &Patch::Apply(manifest))
            .await
    };
    let made = apply(json!({})).await.unwrap();
    let wide = apply(json!({"type": "NodePort"})).await.unwrap();
    assert_eq!(address(&wide), address(&made));
    let port = wide.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].node_port;
    assert!(port.is_some());
    let same = apply(json!({"type": "NodePort", "sessionAffinity": "ClientIP"}))
        .await
        .unwrap();
    assert_eq!(
        same.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].node_port,
        port
    );
    let narrow = apply(json!({})).await.unwrap();
    let spec = narrow.spec.as_ref().unwrap();
    assert_eq!(
        (
            spec.ports.as_ref().unwrap()[0].node_port,
            &spec.external_traffic_policy
        ),
        (None, &None)
    );
    let other = service(
        "other",
        &web(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]})),
    );
    services
        .create(&PostParams::default(), &other)
        .await
        .unwrap();
    let error = apply(json!({"ports": [{"port": 80}, {"port": 81}]}))
        .await
        .unwrap_err();
    let kube::Error::Api(status) = error else {
        panic!("{error}")
    };
    assert!(
        status
            .message
            .contains("spec.ports[0].name: Required value"),
        "{}",
        status.message
    );
}

#[tokio::test]
async fn slices_of_a_users_service_are_written_and_validated() {
    let world = World::start().await;
    let slices: Api<EndpointSlice> = Api::namespaced(world.kube(), "default");
    let slice = |name: &str, endpoints: Value| -> EndpointSlice {
        let labels = json!({"kubernetes.io/service-name": "db"});
        let value = json!({"metadata": {"name": name, "labels": labels}, "addressType": "IPv6", "endpoints": endpoints,
            "ports": [{"port": 5_432}]});
        serde_json::from_value(value).unwrap()
    };
    let same = json!({"addresses": ["fd00:1::1"]});
    let create = async |name: &str, endpoints: Value| {
        slices
            .create(&PostParams::default(), &slice(name, endpoints))
            .await
    };
    let made = create("db-1", vec![same.clone(); 1_000].into())
        .await
        .unwrap();
    let port = &made.ports.as_ref().unwrap()[0];
    assert_eq!(
        (port.name.as_deref(), port.protocol.as_deref()),
        (Some(""), Some("TCP"))
    );
    let (reason, text) = refused(create("db-2", vec![same; 1_001].into()).await.unwrap_err());
    assert_eq!(
        (reason.as_str(), text.as_str()),
        (
            "FieldValueTooMany",
            "endpoints: Too many: 1001: must have at most 1000 items"
        )
    );
    slices
        .delete("db-1", &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn kubectl_applies_changes_and_shows_a_service() {
    let world = World::start().await;
    let manifest = "\
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: fd00:96::80
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 8080}
  - {name: dns, port: 53, protocol: UDP}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, labels: {kubernetes.io/service-name: db}}
addressType: IPv6
endpoints: [{addresses: ['fd00:1::1']}]
ports: [{name: sql, port: 5432, protocol: TCP}]
";
    let applied = world.kubectl("apply -f -", manifest).await;
    assert_eq!(
        applied,
        "service/web created\nendpointslice.discovery.k8s.io/db-1 created\n"
    );
    let applied = world.kubectl("apply -f -", manifest).await;
    assert_eq!(
        applied,
        "service/web unchanged\nendpointslice.discovery.k8s.io/db-1 unchanged\n"
    );
    let changed = manifest
        .replace("targetPort: 8080", "targetPort: 8081")
        .replace("port: 53", "port: 54");
    world.kubectl("apply -f -", &changed).await;
    let row = |table: &str| -> Vec<String> {
        let row = table.lines().nth(1).unwrap_or_default();
        row.split_whitespace().map(str::to_owned).collect()
    };
    let table = world.kubectl("get svc -o wide", "").await;
    let cells = row(&table);
    let want = ["web", "ClusterIP", "fd00:96::80", "<none>", "80/TCP,54/UDP"];
    assert_eq!(cells[..5], want, "{table}");
    assert_eq!(cells[6], "app=web");
    let path = "get svc web -o jsonpath={.spec.ports[0].targetPort}";
    assert_eq!(world.kubectl(path, "").await, "8081");
    let table = world.kubectl("get endpointslices", "").await;
    assert_eq!(
        row(&table)[..4],
        ["db-1", "IPv6", "5432", "fd00:1::1"],
        "{table}"
    );
    let (ended, own) = run_on_screen(&world.endpoint, "get services", None).await;
    assert_eq!(
        (ended.unwrap(), row(&own)[..5].to_vec()),
        (Exit::Yes, want.map(str::to_owned).to_vec())
    );
    let described = world.kubectl("describe service web", "").await;
    assert!(
        described.contains("fd00:96::80") && described.contains("8081/TCP"),
        "{described}"
    );
    world.kubectl("delete svc web", "").await;
    assert_eq!(world.kubectl("get svc -o name", "").await, "");
}
