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
/// Kills of the server, and changes before each.
const KILLS: usize = 4;
const CHANGES: usize = 120;
/// Least number of mishaps: a proxy that does nothing would prove nothing.
const MISHAPS_MIN: u64 = 40;

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
        let mut hosts: Vec<u16> = (1..=random.u16(1..=4))
            .map(|_| random.u16(1..=99))
            .collect();
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

#[test]
fn an_agent_behind_a_bad_network_has_the_maps_of_one_that_starts_afresh() {
    on_node(|node| {
        node.take_address();
        let mut control = Control::start(node);
        let proxy = Proxy::start(SEED);
        let (mut model, mut random) = (Model::default(), Rng::with_seed(SEED));
        let log = node.dir().join("log");
        let agent = start(node, &proxy.url(), &log);
        for _ in 0..KILLS {
            for _ in 0..CHANGES {
                model.change(&mut random);
            }
            control.crash();
            control.revive();
        }
        for _ in 0..CHANGES {
            model.change(&mut random);
        }
        proxy.calm();
        wait("the maps to have the server's objects", || {
            programmed(node) == model.programmed()
        });
        assert!(proxy.mishaps() >= MISHAPS_MIN, "{}", proxy.mishaps());
        let expired = r#"dormouse_kubernetes_lists_total{kind="EndpointSlice",reason="expired"}"#;
        assert!(metric(expired) > 0);

        let followed = programmed(node);
        agent.kill();
        node.home().detach();
        let _agent = start(node, &format!("http://{}", control::API), &log);
        wait("the maps of a new agent", || programmed(node) == followed);
    });
}
