//! A pod's status as its node reports it.

use std::net::IpAddr;

use dormouse_cluster::pod::{Because, set_condition};
use dormouse_fleet::proto::{self, pod_status::Phase};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, Pod, PodIP,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// Writes a reported status into a pod object; returns whether anything changed. Reports about another pod of the same
/// name are ignored.
pub(crate) fn write_status(pod: &mut Pod, reported: &proto::PodStatus, now: Timestamp) -> bool {
    if !reported.uid.is_empty() && pod.metadata.uid.as_deref() != Some(reported.uid.as_str()) {
        return false;
    }
    let before = pod.status.clone();
    let container = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.containers.first())
        .cloned()
        .unwrap_or_default();
    let status = pod.status.get_or_insert_default();
    status.phase = Some(phase(reported.phase()).to_owned());
    let address = address(&reported.address);
    status.pod_ips = address.as_ref().map(|address| {
        vec![PodIP {
            ip: address.clone(),
        }]
    });
    status.pod_ip = address;
    let reason = Some(reported.reason.clone()).filter(|reason| !reason.is_empty());
    let message = Some(reported.message.clone()).filter(|message| !message.is_empty());
    let ready = reported.ready && reported.phase() == Phase::Running;
    let started = status.start_time.get_or_insert(Time(now)).clone();
    for type_ in ["Ready", "ContainersReady"] {
        let because = reason.clone().filter(|_| !ready).map(|reason| Because {
            reason,
            message: message.clone().unwrap_or_default(),
        });
        let conditions = status.conditions.get_or_insert_default();
        set_condition(conditions, type_, ready, because, now);
    }
    // A pod that runs has no reason of its own; its condition has it.
    let ended = reported.phase() != Phase::Running;
    status.reason = reason.filter(|_| ended);
    status.message = message.filter(|_| ended);
    if reported.phase() == Phase::Gone {
        status.reason.get_or_insert_with(|| "Gone".to_owned());
    }
    status.container_statuses = Some(vec![ContainerStatus {
        name: container.name,
        image: container.image.unwrap_or_default(),
        ready,
        started: Some(reported.phase() == Phase::Running),
        state: Some(state(reported, started)),
        ..ContainerStatus::default()
    }]);
    pod.status != before
}

/// The address of a pod. None if no pod can have it, as in Kubernetes: control, which connects to it, would connect to its own host or link.
fn address(reported: &str) -> Option<String> {
    let address = reported.parse::<IpAddr>().ok()?.to_canonical();
    let is_special = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let is_pods = !is_special
        && !address.is_loopback()
        && !address.is_unspecified()
        && !address.is_multicast();
    is_pods.then(|| reported.to_owned())
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed | Phase::Gone => "Failed",
    }
}

fn state(reported: &proto::PodStatus, started: Time) -> ContainerState {
    let reason = Some(reported.reason.clone()).filter(|reason| !reason.is_empty());
    let message = Some(reported.message.clone()).filter(|message| !message.is_empty());
    match reported.phase() {
        Phase::Pending => {
            let waiting = ContainerStateWaiting {
                reason: reason.or(Some("ContainerCreating".to_owned())),
                message,
            };
            ContainerState {
                waiting: Some(waiting),
                ..ContainerState::default()
            }
        }
        Phase::Running => {
            let running = ContainerStateRunning {
                started_at: Some(started),
            };
            ContainerState {
                running: Some(running),
                ..ContainerState::default()
            }
        }
        Phase::Succeeded | Phase::Failed | Phase::Gone => {
            let failed = i32::from(reported.phase() != Phase::Succeeded);
            let code = Some(reported.exit_code).filter(|code| *code != 0);
            let terminated = ContainerStateTerminated {
                exit_code: code.unwrap_or(failed),
                reason,
                message,
                ..Default::default()
            };
            ContainerState {
                terminated: Some(terminated),
                ..ContainerState::default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_no_pod_can_have_is_left_out() {
        for pods in ["2001:db8::7", "fd00::7", "10.0.0.7"] {
            assert_eq!(address(pods).as_deref(), Some(pods));
        }
        for other in [
            "",
            "web",
            "::",
            "::1",
            "127.0.0.1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "fe80::1",
            "169.254.169.254",
            "ff02::1",
            "255.255.255.255",
        ] {
            assert_eq!(address(other), None, "{other}");
        }
    }
}
