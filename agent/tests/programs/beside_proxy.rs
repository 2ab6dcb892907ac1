//! Beside another proxy: only Services have connections that its rules may have translated.

use dormouse_rig::address::POD;
use dormouse_rig::frame::{ACK, ends, tcp};
use dormouse_rig::tcx::PASS;

use crate::node::{serving, with_node};
use crate::{HERE, THERE, arrive};

/// kube-proxy has no rules for the VIPs of apps, so its conntrack entries cannot continue a connection whose flow is gone.
#[test]
fn a_connection_to_an_app_is_decided_in_its_middle_also_beside_another_proxy() {
    with_node(|node| {
        let datapath = node.open();
        datapath.apps.publish(&serving(&[POD])).unwrap();
        datapath.facts.set_beside_proxy(true).unwrap();
        let run = arrive(&datapath, &tcp(HERE, THERE, ACK));
        assert_eq!(run.verdict, PASS);
        assert_eq!(ends(&run.frame), (HERE, (POD, 8000)));
    });
}
