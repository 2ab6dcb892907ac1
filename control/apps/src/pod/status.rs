//! A pod's status as its node reports it.

use std::fmt::Display;
use std::net::IpAddr;

use dormouse_cluster::pod::{Because, set_condition};
use dormouse_fleet::proto::{self, pod_status::Phase};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, Pod, PodIP,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// Reason of a pod whose node has reported an address that it cannot have.
const ADDRESS_REFUSED: &str = "AddressRefused";
/// Limit of a refused address in a message, in characters: the longest text of an IP address.
const ADDRESS_TEXT_MAX: usize = 45;

/// Writes a reported status, whose address has been checked ([`without_refused`]), into a pod object; returns whether anything changed. Reports about another pod of the same
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
    let address = Some(reported.address.clone()).filter(|address| !address.is_empty());
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

/// A report without the address if that is refused: then the pod is not ready, with the reason. Otherwise control, which connects to it,
/// would connect to its own host or to another one's pod.
pub(crate) fn without_refused<Why: Display>(
    mut reported: proto::PodStatus,
    check: impl FnOnce(IpAddr) -> Result<(), Why>,
) -> proto::PodStatus {
    if reported.address.is_empty() {
        return reported;
    }
    let why = match reported.address.parse() {
        Ok(address) => check(address).err().map(|why| why.to_string()),
        Err(_) => Some("is no IP address".to_owned()),
    };
    let Some(why) = why else { return reported };
    let address: String = reported.address.chars().take(ADDRESS_TEXT_MAX).collect();
    reported.address.clear();
    reported.ready = false;
    ADDRESS_REFUSED.clone_into(&mut reported.reason);
    reported.message = format!("the address {address} that the node reports is refused: {why}");
    reported
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
    fn a_pod_with_a_refused_address_is_not_ready_and_says_why() {
        for (address, is_refused) in [("2001:db8::7", false), ("::1", true), ("web", true)] {
            let reported = proto::PodStatus {
                phase: Phase::Running.into(),
                address: address.into(),
                ready: true,
                ..Default::default()
            };
            let reported = without_refused(reported, |address| {
                dormouse_nodes::unusable(address).map_or(Ok(()), Err)
            });
            let mut pod = Pod::default();
            assert!(write_status(&mut pod, &reported, Timestamp::UNIX_EPOCH));
            let status = pod.status.unwrap();
            assert_eq!(status.pod_ip.is_none(), is_refused, "{address}");
            let conditions = status.conditions.unwrap();
            let ready = conditions.iter().find(|one| one.type_ == "Ready").unwrap();
            assert_eq!(ready.status == "False", is_refused, "{address}");
            let reason = ready.reason.as_deref();
            assert_eq!(reason == Some(ADDRESS_REFUSED), is_refused, "{address}");
            let message = ready.message.clone().unwrap_or_default();
            assert_eq!(message.contains(address), is_refused, "{message}");
        }
    }
}
