//! A claim about Services of the standalone API: a cluster IP is translated to the pods that the Service selects.

use std::net::{Ipv6Addr, SocketAddrV6};

use anyhow::{Result, ensure};

use crate::demo::cluster::{Cluster, HELLO, PATIENCE};
use crate::demo::load;
use crate::report::Row;

/// The cluster IP and port in `deploy/examples/service.yaml`.
const TO: SocketAddrV6 =
    SocketAddrV6::new(Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 0x4e11), 80, 0, 0);
const MANIFEST: &str = "deploy/examples/service.yaml";

/// A node's process reaches the app's pod by the Service, as soon as the app is awake; without the Service it does not.
pub(crate) fn reaches_pods(cluster: &mut Cluster) -> Result<Vec<Row>> {
    let (program, output) = cluster.apply_as_users_do(MANIFEST)?;
    ensure!(output.contains("created"), "{output}");
    let (interrupt, client) = (cluster.interrupt().clone(), cluster.world().client());
    let served = interrupt.wait_for("the Service to reach a pod", PATIENCE, || {
        // Only requests to the app's own VIP wake it, and keep it awake.
        client.enter(|| load::get(HELLO.address(), "/"))??;
        cluster.request_from_node(0, TO)
    })?;
    let pod = served["pod"].as_str().unwrap_or_default().to_owned();
    cluster.dormouse(&["delete", "-f", MANIFEST])?;
    interrupt.wait_for("the Service to be gone", PATIENCE, || {
        let answer = cluster.request_from_node(0, TO)?;
        Ok(answer.is_none().then_some(()))
    })?;
    Ok(vec![Row::claim(
        "a Service's cluster IP connects a node's process to the app's pod",
        pod.starts_with(HELLO.name),
        &format!("applied by {program}, answered by {pod}"),
    )])
}
