//! The latency of a wake, a pod and a scrape while all Services are being programmed, beside that of an idle agent.

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dormouse_agent_datapath::{Backend, ClusterFacts, Datapath, Entry, Mode, PodEntry, XdpMode};
use dormouse_agent_services::change::{Event, Object};
use dormouse_agent_services::{Changes, Services, Strictness};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::{Place, app_range, node, report};

/// Full syncs: half of them program an empty node, the others empty it.
const SYNCS: usize = 6;
/// From one sample to the next.
const PAUSE: Duration = Duration::from_micros(200);
/// How long an idle agent is looked at.
const IDLE: Duration = Duration::from_secs(3);
/// Apps that are woken in turn.
const APPS: u32 = 1_000;
/// The link of the pod that comes again and again: the loopback.
const LOOPBACK: u32 = 1;

/// What is measured, and what each took.
struct Samples {
    names: [&'static str; 3],
    took: [Vec<Duration>; 3],
}

impl Samples {
    fn new() -> Self {
        Self {
            names: ["a wake", "a pod", "a scrape"],
            took: Default::default(),
        }
    }

    /// Takes samples until `is_over`.
    fn take(&mut self, datapath: &Datapath, is_over: impl Fn() -> bool) {
        for round in 0.. {
            let wake = time(|| datapath.apps.publish(&woken(round)).unwrap());
            let pod = time(|| datapath.pods.add(pod()).unwrap());
            let scrape = time(|| drop((datapath.stats(), datapath.fill())));
            // One that ended after the sync has not been beside it.
            if is_over() {
                return;
            }
            for (all, one) in self.took.iter_mut().zip([wake, pod, scrape]) {
                all.push(one);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The 99th percentile of each, in microseconds.
    fn p99(&mut self) -> [f64; 3] {
        self.took.each_mut().map(|took| {
            took.sort_unstable();
            took[took.len() * 99 / 100].as_secs_f64() * 1e6
        })
    }
}

fn time(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// An app that wakes in one round and sleeps in the next: rows come and go.
fn woken(round: u32) -> Entry {
    let vip = 1 + round % APPS;
    let awake = (round / APPS).is_multiple_of(2);
    let address = Ipv6Addr::from_bits((0x2001_0db8_00d0_0000_0000_0003 << 32) + u128::from(vip));
    let backend = Backend {
        address,
        port: 80,
        weight: 1,
    };
    Entry {
        vip,
        mode: if awake { Mode::Serve } else { Mode::Proxy },
        share: 0,
        backends: awake.then_some(backend).into_iter().collect(),
        leased: true,
        asleep: !awake,
        gone: false,
        port: 80,
        protocol: 6,
    }
}

fn pod() -> PodEntry {
    PodEntry {
        address: "2001:db8:d0:0:0:1:0:77".parse().unwrap(),
        address4: None,
        ifindex: LOOPBACK,
        mac: [2, 0, 0, 0, 0, 7],
        direct: false,
    }
}

/// All Services come, or all go.
fn translate(services: &mut Services, objects: &[(Service, EndpointSlice)], come: bool) -> Changes {
    for (service, slice) in objects {
        for object in [Object::Service(service), Object::EndpointSlice(slice)] {
            services.apply(&if come {
                Event::Applied(object)
            } else {
                Event::Deleted(object)
            });
        }
    }
    services.sync()
}

/// Measures both, and prints each percentile and their ratio.
pub(crate) fn measure(objects: &[(Service, EndpointSlice)]) {
    let place = Place::make(XdpMode::Off);
    let datapath = Datapath::open(place.0.clone()).unwrap();
    datapath.facts.configure(&[app_range()], &[]).unwrap();
    let facts = ClusterFacts::new(&node());
    datapath.services.set_cluster(&facts).unwrap();
    let mut idle = Samples::new();
    let begin = Instant::now();
    idle.take(&datapath, || begin.elapsed() > IDLE);
    let mut busy = Samples::new();
    let mut services = Services::new(node(), Strictness::KubeProxy);
    for sync in 0..SYNCS {
        let changes = translate(&mut services, objects, sync.is_multiple_of(2));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| {
                let served = datapath.services.serve(&services, &changes).unwrap();
                over.store(true, Ordering::Release);
                served
            });
            busy.take(&datapath, || over.load(Ordering::Acquire));
            assert!(sync.join().unwrap().shed.is_empty());
        });
        datapath.grace();
    }
    let (idle_p99, busy_p99) = (idle.p99(), busy.p99());
    for (name, (idle, busy)) in busy.names.iter().zip(idle_p99.iter().zip(busy_p99)) {
        report(&format!("{name} on an idle agent, p99"), *idle, "µs");
        report(&format!("{name} during a full sync, p99"), busy, "µs");
        report(
            &format!("{name} during a full sync, over idle"),
            busy / idle,
            "×",
        );
    }
}
