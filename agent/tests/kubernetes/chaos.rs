//! The agent follows `dormouse up` through a bad network and kills of the server.

use std::collections::BTreeMap;

use dormouse_rig::{on_node, wait};
use fastrand::Rng;

use crate::control::{self, Control};
use crate::proxy::Proxy;
use crate::{Programmed, TCP, backend, metric, programmed, start, vip};

const SEED: u64 = 16;
/// Services that come, change and go.
const SERVICES: u16 = 20;
/// Kills of the server, and least number of mishaps before each.
const KILLS: u64 = 4;
const MISHAPS: u64 = 15;

/// The Services that there are, with the hosts of their backends.
#[derive(Default)]
struct Model {
    services: BTreeMap<u16, Vec<u16>>,
}

impl Model {
    /// Makes a change at the API, and here.
    fn change(&mut self, random: &mut Rng) {
        let number = random.u16(1..=SERVICES);
        if self.services.contains_key(&number) && random.u8(0..5) == 0 {
            self.services.remove(&number);
            return control::delete(number);
        }
        let count = random.u16(1..=4);
        let mut hosts: Vec<_> = (0..count).map(|_| random.u16(1..=99)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        control::put(number, &hosts);
        self.services.insert(number, hosts);
    }

    fn programmed(&self) -> Programmed {
        let services = self.services.iter().map(|(number, hosts)| {
            let mut backends: Vec<_> = hosts.iter().map(|host| (backend(*host), 8_080)).collect();
            backends.sort_unstable();
            ((vip(*number), 80, TCP), backends)
        });
        services.collect()
    }
}

/// Lists because the server had forgotten the events.
fn lists_after_410() -> u64 {
    let kinds = ["Node", "Service", "EndpointSlice"];
    let lists = kinds.map(|kind| {
        metric(&format!(
            r#"dormouse_kubernetes_lists_total{{kind="{kind}",reason="expired"}}"#
        ))
    });
    lists.iter().sum()
}

#[test]
fn an_agent_behind_a_bad_network_has_the_maps_of_one_that_starts_afresh() {
    on_node(|node| {
        node.take_address();
        let mut control = Control::start(node);
        let proxy = Proxy::start(SEED);
        let (mut model, mut random) = (Model::default(), Rng::with_seed(SEED));
        let agent = start(node, &proxy.url());
        for turn in 1..=KILLS {
            wait("mishaps", || {
                model.change(&mut random);
                proxy.mishaps() >= turn * MISHAPS
            });
            control.crash();
            control.revive();
        }
        wait("each kind of mishap", || {
            model.change(&mut random);
            proxy.has_done_all() && lists_after_410() > 0
        });
        proxy.calm();
        wait("the maps to have the server's objects", || {
            programmed(node) == model.programmed()
        });

        let followed = programmed(node);
        agent.kill();
        node.home().detach();
        let _agent = start(node, &Control::url());
        wait("the maps of a new agent", || programmed(node) == followed);
    });
}
