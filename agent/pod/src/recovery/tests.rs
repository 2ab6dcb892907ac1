//! Differences between journal and kernel after a crash.

use dormouse_agent_ipam::LeaseKey;

use super::*;

const BRIDGE: u32 = 3;
const BRIDGES: &[u32] = &[2, BRIDGE];

fn key(container: &str) -> LeaseKey {
    LeaseKey {
        network: "pods".into(),
        container: container.into(),
        ifname: "eth0".into(),
    }
}

fn alias(container: &str, suffix: u32) -> Alias {
    Alias {
        key: key(container),
        suffix: Suffix(suffix),
        mac: names::pod_mac(Suffix(suffix)),
        address4: None,
    }
}

fn lease(container: &str, suffix: u32, state: State) -> Lease {
    Lease {
        state,
        ..adopted(&alias(container, suffix))
    }
}

fn link(suffix: u32, holder: Option<&str>) -> PodLink {
    PodLink {
        suffix: Suffix(suffix),
        ifindex: suffix,
        controller: Some(BRIDGE),
        alias: holder.map(|name| alias(name, suffix)),
        mtu: 1500,
        queues: false,
    }
}

#[test]
fn a_live_pod_is_recovered_and_everything_incomplete_is_undone() {
    let leases = [
        lease("lives", 0x1_0000, State::Live),
        lease("vanished", 0x1_0001, State::Live),
        lease("half-made", 0x1_0002, State::Reserved),
        lease("half-gone", 0x1_0003, State::Releasing),
    ];
    let links = [
        link(0x1_0000, Some("lives")),
        link(0x1_0002, None),
        link(0x1_0003, Some("x")),
    ];
    assert_eq!(
        plan(leases.iter(), &links, BRIDGES),
        [
            Repair::Keep(links[0].clone()),
            Repair::Unwire(leases[1].clone()),
            Repair::Unwire(leases[2].clone()),
            Repair::Unwire(leases[3].clone()),
        ]
    );
}

#[test]
fn a_pod_missing_in_the_journal_is_restored_and_an_unknown_link_is_removed() {
    let pod = plan([].into_iter(), &[link(0x1_0000, Some("lives"))], BRIDGES);
    assert_eq!(
        pod,
        [Repair::Adopt(
            lease("lives", 0x1_0000, State::Live),
            link(0x1_0000, Some("lives"))
        )]
    );
    let mut dual = link(0x1_0000, Some("lives"));
    let address4 = Some("10.1.2.3".parse().unwrap());
    dual.alias.as_mut().unwrap().address4 = address4;
    let pod = plan([].into_iter(), &[dual], BRIDGES);
    assert!(matches!(&pod[0], Repair::Adopt(lease, _) if lease.ipv4 == address4));
    let nameless = plan([].into_iter(), &[link(0x1_0001, None)], BRIDGES);
    assert_eq!(nameless, [Repair::RemoveLink("dm00010001".into())]);
}
