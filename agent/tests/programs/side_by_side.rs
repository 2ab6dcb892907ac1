//! A wake, a pod and a scrape while Services are being programmed: none waits for the sync.

use dormouse_agent_datapath::PodEntry;
use dormouse_rig::address::{FAR_POD, POD};

use super::node::{VIP_INDEX, serving, with_node};

#[test]
fn nothing_but_services_waits_for_a_sync() {
    with_node(|node| {
        let datapath = node.open();
        // The view holds the lock of Services, as a sync does: a call that waited for it would never return.
        let sync = datapath.view().unwrap();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        datapath.apps.counts();
        datapath.apps.expire_idle(0, 0).unwrap();
        datapath.apps.grant(u64::MAX);
        datapath.grace();
        let pod = PodEntry {
            address: FAR_POD,
            address4: None,
            // The loopback: a link to attach to.
            ifindex: 1,
            mac: [2, 0, 0, 0, 0, 8],
            direct: true,
        };
        datapath.pods.add(pod).unwrap();
        datapath.pods.remove(FAR_POD).unwrap();
        assert!(!datapath.stats().is_empty());
        let filled = datapath.fill();
        let backends = filled.iter().find(|(map, _, _)| *map == "backend");
        assert_eq!(backends.map(|(_, used, _)| *used), Some(1));
        assert_eq!(datapath.apps.followed(), [VIP_INDEX]);
        datapath.refresh_uplink().unwrap();
        drop(sync);
    });
}
