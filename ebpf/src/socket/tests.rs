//! Decisions of calls by pods and by the node: to no frontend, to a Service, to an app.

use super::*;
use crate::config::{Activator, Config, Net, Range};
use crate::decide::NO_BACKEND;
use crate::maps::{Affinity, AffinityKey, Backend, FrontendKey, SlotOptions, join};
use crate::service::{Mode, Owner, Protocol, Route, Set};

const NODE: [u8; 16] = [0xd0; 16];
const NODE_NETNS: u64 = 4026;
const POD_NETNS: u64 = 4027;
const APP: [u8; 16] = [0xfd, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
const CLUSTER_IP: [u8; 16] = [0xfd, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
const GROUP: u32 = 5;

/// The maps of a node with an app at slot 7 and a Service at slot 1009.
struct Maps {
    config: Config,
    service: Route,
    takes_token: bool,
}

const SERVED: Route = Route {
    mode: Mode::Serve,
    present: true,
    owner: Owner::Service {
        role: 0,
        group: Some(1009),
    },
    port: 80,
    protocol: Protocol::Tcp,
    ..Route::ABSENT
};

fn maps(service: Route) -> Maps {
    let range = |address: &[u8; 16], base| Range {
        prefix: join(address, [0; 4]),
        mask: 0xffff_ff00,
        base,
    };
    let mut config = Config {
        ranges_len: 1,
        services_len: 1,
        activators_len: 1,
        netns: NODE_NETNS,
        node_address: NODE,
        ..Config::default()
    };
    config.ranges[0] = range(&APP, 0);
    config.services[0] = range(&CLUSTER_IP, 1000);
    config.service_ranges[0] = Net {
        prefix: config.services[0].prefix,
        mask: [0xff; 16],
    };
    config.activators[0] = Activator {
        prefix: [0xa1; 16],
        via: [0xc0; 16],
    };
    Maps {
        config,
        service,
        takes_token: false,
    }
}

impl Tables for Maps {
    fn config(&self) -> Option<&Config> {
        Some(&self.config)
    }
    fn route(&self, slot: u32) -> Option<u64> {
        match slot {
            7 => Some(Route::ABSENT.pack()),
            1009 => Some(self.service.pack()),
            _ => None,
        }
    }
    fn set(&self, _: u32) -> Option<u64> {
        let set = Set {
            count: 1,
            ..Set::default()
        };
        Some(set.pack())
    }
    fn id(&self, place: u32) -> Option<u32> {
        Some(place)
    }
    fn backend(&self, _: u32) -> Option<Backend> {
        Some(Backend {
            port: 8000,
            ..Backend::default()
        })
    }
    fn prefix(&self, _: u32) -> Option<[u8; 16]> {
        Some([0x20; 16])
    }
    fn frontend_filter(&self, _: u32) -> u64 {
        0
    }
    fn frontend(&self, _: &FrontendKey) -> Option<u32> {
        None
    }
    fn has_pod(&self, _: &[u8; 16]) -> bool {
        false
    }
    fn slot_options(&self, _: u32) -> Option<SlotOptions> {
        Some(SlotOptions {
            affinity_s: 10,
            group: GROUP,
            ..SlotOptions::default()
        })
    }
    fn in_source_range(&self, _: u32, _: &[u8; 16]) -> bool {
        true
    }
    fn affinity(&self, _: &AffinityKey) -> Option<Affinity> {
        None
    }
    fn takes_token(&self, vip: u32, _: Route, target: Target) -> bool {
        self.takes_token && vip == 7 && target.port == 80
    }
    fn lease_until_ns(&self) -> u64 {
        0
    }
    fn now_ns(&self) -> u64 {
        0
    }
}

struct Process(u64);

impl Caller for Process {
    fn protocol(&self) -> u8 {
        crate::packet::TCP
    }
    fn is_node(&self, netns: u64) -> bool {
        self.0 == netns
    }
    fn hash(&self) -> u64 {
        1
    }
}

fn call(maps: &Maps, netns: u64, target: [u8; 16]) -> (Call, Request, Choice) {
    let mut request = Request {
        target,
        port: 80,
        ..Request::default()
    };
    let mut choice = Choice::default();
    let call = decide_call(maps, &Process(netns), &mut request, &mut choice);
    (call, request, choice)
}

#[test]
fn a_target_that_is_no_frontend_costs_no_helper_call() {
    struct Silent;
    impl Caller for Silent {
        fn protocol(&self) -> u8 {
            panic!("asked for the protocol")
        }
        fn is_node(&self, _: u64) -> bool {
            panic!("asked for the network namespace")
        }
        fn hash(&self) -> u64 {
            panic!("asked for random bits")
        }
    }
    let mut request = Request {
        target: [0x20; 16],
        ..Request::default()
    };
    let call = decide_call(&maps(SERVED), &Silent, &mut request, &mut Choice::default());
    assert_eq!(call, Call::Unchanged(Unchanged::NoFrontend));
}

#[test]
fn a_call_to_a_service_is_translated_to_its_backend() {
    for netns in [POD_NETNS, NODE_NETNS] {
        let (call, _, choice) = call(&maps(SERVED), netns, CLUSTER_IP);
        assert_eq!(call, Call::Translated(Effect::None, None));
        assert_eq!((choice.address[0], choice.port), (0x20, 8000));
    }
}

#[test]
fn session_affinity_is_left_to_a_pods_packet_and_recorded_for_the_node() {
    let maps = maps(Route {
        affinity: true,
        ..SERVED
    });
    let (of_pod, ..) = call(&maps, POD_NETNS, CLUSTER_IP);
    assert_eq!(of_pod, Call::Unchanged(Unchanged::NeedsClientAddress));
    let (of_node, request, choice) = call(&maps, NODE_NETNS, CLUSTER_IP);
    assert_eq!(of_node, Call::Translated(Effect::RecordAffinity, None));
    assert_eq!((request.source, choice.group), (NODE, GROUP));
}

#[test]
fn a_service_without_backend_is_left_to_a_pods_packet_and_refused_for_the_node() {
    let maps = maps(Route {
        mode: Mode::Reject,
        ..SERVED
    });
    let (of_pod, ..) = call(&maps, POD_NETNS, CLUSTER_IP);
    assert_eq!(of_pod, Call::Unchanged(Unchanged::LeftToPacket));
    let (of_node, _, choice) = call(&maps, NODE_NETNS, CLUSTER_IP);
    assert_eq!(of_node, Call::Refused(Verdict::Rejected));
    assert_eq!(choice.slot, 1009, "the drop is counted for the Service");
}

#[test]
fn a_call_to_an_app_wakes_it_and_goes_to_its_activator() {
    let (call, _, choice) = call(&maps(SERVED), POD_NETNS, APP);
    assert_eq!(call, Call::Translated(Effect::Wake, Some(Verdict::Proxied)));
    assert_eq!((choice.address[0], choice.backend), (0xa1, NO_BACKEND));
}

#[test]
fn a_call_that_takes_a_token_is_left_to_a_pods_packet_unless_no_program_sees_that() {
    let mut maps = maps(SERVED);
    maps.takes_token = true;
    let translated = Call::Translated(Effect::Wake, Some(Verdict::Proxied));
    let (of_pod, ..) = call(&maps, POD_NETNS, APP);
    assert_eq!(of_pod, Call::Unchanged(Unchanged::LeftToPacket));
    let (of_node, ..) = call(&maps, NODE_NETNS, APP);
    assert_eq!(of_node, translated, "the node's packets pass no pod's link");
    maps.config.unseen_pods = 1;
    let (of_pod, ..) = call(&maps, POD_NETNS, APP);
    assert_eq!(of_pod, translated, "a pod of another CNI plugin");
}
