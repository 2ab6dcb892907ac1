//! The data path under test: packets as input, decisions as output.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use aya::maps::{HashMap as BpfHashMap, Map, MapData};
use dormouse_agent_datapath::{ClusterFacts, Config, Datapath, Hook, Pinned, PodEntry};
use dormouse_agent_services::{Changes, Family, Node, Services, Strictness, Vip};
use dormouse_ebpf::decide::{Choice, Decision, Request, Tables, decide};
use dormouse_ebpf::flow::{FlowKey, NAT_PORTS_HIGH, NAT_PORTS_LOW, flow_hash};
use dormouse_ebpf::maps::{
    FOR_CLUSTER, FOR_LOCAL, FRONTEND_LOCAL_ADDRESS, FrontendKey, SlotOptions, join,
};
use dormouse_ebpf::pick::mix;
use dormouse_ebpf::service::{Route, SLOTS_MAX, Set};
use dormouse_rig::tcx::{DROP, NEXT, PASS, REDIRECT};

use crate::clients::Clients;
use crate::driver::Received;
use crate::frame::{Parcel, is_icmp, is_refusal, is_reset, number};

/// The test run's device is the loopback device of the namespace.
const LOOPBACK: u32 = 1;

/// The link-layer address of every pod, as frames have it already.
const POD_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Pass,
    Reject,
    Drop,
    /// Its connection was broken off, or refused by the means of TCP.
    Reset,
    /// It went on, like this.
    Deliver(Parcel),
}

/// Who sends a packet, and so where it is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sender {
    Pod,
    Outside,
    Node,
}

pub(crate) struct World {
    config: Config,
    /// None while one agent is relieved by the next.
    datapath: Option<Datapath>,
    /// Its maps as inspection reads them; opened again when the node's configuration changes.
    maps: Option<Pinned>,
    node: Option<Node>,
    pods: BTreeSet<Ipv6Addr>,
    clients: Clients,
    pins: PathBuf,
    /// Packets that the uplink's XDP program has dropped, as the classifier did.
    pub(crate) dropped_by_driver: usize,
    sent: u32,
    /// When the scenario began, counted in packets.
    begun: u32,
    /// How full the maps are without any Service.
    empty: Vec<(&'static str, usize, usize)>,
}

impl World {
    pub(crate) fn open(config: Config) -> Self {
        let datapath = Datapath::open(config.clone()).expect("a data path");
        let mut schemas = std::fs::read_dir(&config.bpffs).unwrap();
        let pins = schemas.find_map(|schema| {
            let path = schema.unwrap().path();
            path.join("affinity").exists().then_some(path)
        });
        let pins = pins.expect("the folder of pins");
        let affinity = BpfHashMap::try_from(Map::LruHashMap(pinned(&pins, "affinity")));
        Self {
            config,
            datapath: Some(datapath),
            maps: None,
            node: None,
            pods: BTreeSet::new(),
            clients: Clients::new(affinity.unwrap()),
            pins,
            dropped_by_driver: 0,
            sent: 0,
            begun: 0,
            empty: Vec::new(),
        }
    }

    /// A scenario begins on this node.
    pub(crate) fn begin(&mut self, node: &Node) {
        self.node = Some(node.clone());
        self.tell_cluster();
        if self.empty.is_empty() {
            // The first agent removes the state of the previous one.
            let nothing = Services::new(node.clone(), Strictness::KubeProxy);
            self.datapath().services.settle(&nothing);
        }
        self.empty = self.datapath().fill();
        self.clients.begin();
        self.begun = self.sent;
    }

    pub(crate) fn serve(&mut self, services: &Services, changes: &Changes) {
        self.refresh();
        let served = self.datapath().services.serve(services, changes).unwrap();
        assert!(served.shed.is_empty(), "no room: {:?}", served.shed);
        let ended = self.datapath().services.flows().end_stale(|flow| {
            changes.scans(Family::of(flow.destination)) && services.is_stale(flow)
        });
        ended.unwrap();
    }

    /// Another agent takes over and receives all Services.
    pub(crate) fn relieve(&mut self, services: &Services, changes: &Changes) {
        self.datapath = None;
        self.datapath = Some(Datapath::open(self.config.clone()).expect("a data path"));
        self.tell_cluster();
        self.serve(services, changes);
        self.datapath().services.settle(services);
    }

    fn tell_cluster(&mut self) {
        let facts = ClusterFacts::new(self.node());
        self.datapath().services.set_cluster(&facts).unwrap();
        self.maps = Some(Pinned::open(&self.config.bpffs).unwrap());
    }

    fn datapath(&self) -> &Datapath {
        self.datapath.as_ref().unwrap()
    }

    fn maps(&self) -> &Pinned {
        self.maps.as_ref().unwrap()
    }

    fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    pub(crate) fn sender(&self, source: IpAddr) -> Sender {
        if self.node().is_local(source) {
            Sender::Node
        } else if self.node().is_pod(source) {
            Sender::Pod
        } else {
            Sender::Outside
        }
    }

    /// A source port that the scenario has not had.
    pub(crate) fn fresh_port(&mut self) -> u16 {
        const FIRST: u32 = 1_024;
        const ALL: u32 = (1 << 16) - FIRST;
        self.sent += 1;
        assert!(
            self.sent - self.begun < ALL,
            "the scenario has no port left"
        );
        u16::try_from(FIRST + self.sent % ALL).unwrap()
    }

    /// Sends the first packet of a connection.
    pub(crate) fn send(&mut self, parcel: &Parcel) -> Result<Fate, String> {
        let (told, choice) = self.explain(parcel);
        if self.sender(parcel.source.ip()) == Sender::Node {
            return Ok(told);
        }
        let fate = self.run(parcel)?;
        if !is_alike(parcel, &fate, &told) {
            return Err(format!(
                "explained differently: {fate:?}, explain: {told:?}"
            ));
        }
        if let Fate::Deliver(led) = fate {
            self.noted(parcel.source.ip(), &choice, led.target)?;
        }
        Ok(fate)
    }

    /// The node's own call was answered by this backend.
    pub(crate) fn called(&mut self, parcel: &Parcel, real: SocketAddr) -> Result<(), String> {
        let (_, choice) = self.explain(parcel);
        self.noted(parcel.source.ip(), &choice, real)
    }

    /// Sends a later packet of a connection.
    pub(crate) fn go(&mut self, parcel: &Parcel) -> Result<Fate, String> {
        let (_, choice) = self.explain(parcel);
        let fate = self.run(parcel);
        if choice.group != 0 {
            self.clients.restore(parcel.source.ip(), &choice);
        }
        fate
    }

    fn run(&mut self, parcel: &Parcel) -> Result<Fate, String> {
        let sent = parcel.frame();
        let hook = self.hook(parcel);
        let received = (hook == Hook::UplinkIn).then(|| Received::by(self.datapath(), &sent));
        let run = self.datapath().programs.run(hook, &sent).unwrap();
        if let Some(received) = received {
            self.dropped_by_driver += usize::from(received.is_dropped());
            received.compare(self.datapath(), &sent, &run)?;
        }
        let frame = run.frame;
        match run.verdict {
            NEXT if frame == sent => Ok(Fate::Pass),
            NEXT => Err("changed, and left alone".to_owned()),
            DROP => Ok(Fate::Drop),
            REDIRECT if is_icmp(&frame) => match is_refusal(&sent, &frame) {
                Ok(()) => Ok(Fate::Reject),
                Err(wrong) => Err(format!("the refusal {wrong}: {frame:02x?}")),
            },
            REDIRECT if is_reset(parcel, &sent, &frame) => Ok(Fate::Reset),
            verdict @ (PASS | REDIRECT) => {
                let led = parcel.read(&frame);
                let led = led.ok_or_else(|| format!("a broken frame: {frame:02x?}"))?;
                self.is_honest(parcel, &led, verdict)?;
                Ok(Fate::Deliver(led))
            }
            other => Err(format!("verdict {other}")),
        }
    }

    /// The program that the packet meets; a pod that sends is one that the node knows.
    fn hook(&mut self, parcel: &Parcel) -> Hook {
        let source = parcel.source.ip();
        let address = match source {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        if self.sender(source) != Sender::Pod {
            // A pod of another scenario: packets from outside with a local pod's IPv4 address are dropped.
            if source.is_ipv4() && self.pods.remove(&address) {
                self.datapath().pods.remove(address).unwrap();
            }
            return Hook::UplinkIn;
        }
        if self.pods.insert(address) {
            let pod = PodEntry {
                address,
                address4: None,
                ifindex: LOOPBACK,
                mac: POD_MAC,
                direct: true,
            };
            self.datapath().pods.add(pod).unwrap();
        }
        Hook::PodIn
    }

    /// Whether the packet is left to the kernel just if its target is the node itself, and its source is the sender's still, or the
    /// node's own with a port that it keeps for others.
    fn is_honest(&self, sent: &Parcel, led: &Parcel, verdict: u32) -> Result<(), String> {
        let target = led.target.ip();
        let known = match target {
            IpAddr::V4(target) => self.pods.contains(&target.to_ipv6_mapped()),
            IpAddr::V6(_) => false,
        };
        let (way, hops) = if self.node().is_local(target) && !known {
            (PASS, 0)
        } else {
            (REDIRECT, 1)
        };
        if verdict != way || led.hops != sent.hops - hops {
            return Err(format!("verdict {verdict} with {} hops left", led.hops));
        }
        let port = led.source.port();
        let range = (NAT_PORTS_LOW.0..NAT_PORTS_LOW.1).contains(&port) || port >= NAT_PORTS_HIGH;
        let hidden = Some(led.source.ip()) == self.primary(sent.source.ip()) && range;
        if led.source == sent.source || hidden {
            Ok(())
        } else {
            Err(format!("comes from {}", led.source))
        }
    }

    /// The node's own address of the family.
    pub(crate) fn primary(&self, address: IpAddr) -> Option<IpAddr> {
        self.node().primary(Family::of(address))
    }

    /// What the decision is outside of the kernel, over the same maps.
    pub(crate) fn explain(&self, parcel: &Parcel) -> (Fate, Choice) {
        let mut choice = Choice::default();
        let answer = decide(self.maps(), &self.asked(parcel), &mut choice);
        self.maps().take_steps();
        self.maps().take_affinity();
        let fate = match answer {
            Decision::Pass => Fate::Pass,
            Decision::Reject(_) => Fate::Reject,
            Decision::Drop(_) => Fate::Drop,
            Decision::Forward(_) => Fate::Deliver(Parcel {
                target: SocketAddr::new(address(choice.address), choice.port),
                source: match self
                    .primary(parcel.source.ip())
                    .filter(|_| choice.masquerade)
                {
                    // The kernel chooses the port; 0 stands for any.
                    Some(primary) => SocketAddr::new(primary, 0),
                    None => parcel.source,
                },
                ..*parcel
            }),
        };
        (fate, choice)
    }

    fn asked(&self, parcel: &Parcel) -> Request {
        let (source, target) = (octets(parcel.source.ip()), octets(parcel.target.ip()));
        let protocol = number(parcel.protocol);
        let sender = self.sender(parcel.source.ip());
        let ports = (parcel.source.port(), parcel.target.port());
        let hash = match sender {
            // A socket's port is not known yet when it is led, so its hash is drawn.
            Sender::Node => mix(self.sent.into()),
            _ => flow_hash(&FlowKey {
                source,
                target,
                source_port: ports.0,
                target_port: ports.1,
                protocol: protocol.into(),
            }),
        };
        Request {
            source,
            target,
            port: ports.1,
            protocol,
            from_node: sender == Sender::Node,
            consistent: sender == Sender::Outside,
            hash,
        }
    }
}

/// Whether both say the same of a packet; the node's port is drawn by the kernel.
pub(crate) fn is_alike(sent: &Parcel, fate: &Fate, told: &Fate) -> bool {
    match (fate, told) {
        (Fate::Deliver(led), Fate::Deliver(told)) => {
            let hides = |led: &Parcel| led.source != sent.source;
            led.target == told.target && hides(led) == hides(told)
        }
        // A SYN is refused by a reset: for its sender that is the same, and sooner.
        (Fate::Reset, Fate::Reject) => sent.opens,
        _ => fate == told,
    }
}

/// What is remembered of clients.
impl World {
    /// Puts a client on record for the backend of the service port that has these VIPs.
    pub(crate) fn bind(
        &mut self,
        client: IpAddr,
        vips: &[Vip],
        backend: SocketAddr,
    ) -> Result<(), String> {
        for vip in vips {
            let source = SocketAddr::new(client, 1);
            let target = SocketAddr::new(vip.address, vip.port);
            let slot = self
                .explain(&Parcel::first(source, target, vip.protocol))
                .1
                .slot;
            if let Some(choice) = self.row(slot, backend) {
                let affinity = self.clients.after(self.maps(), client, &choice);
                self.clients.bind(client, &choice, affinity);
                return Ok(());
            }
        }
        Err(format!("no row of {backend}"))
    }

    /// The choice of a backend among all that the slot's service port may send to, whatever policy keeps its clients away
    /// from it now.
    fn row(&self, slot: u32, backend: SocketAddr) -> Option<Choice> {
        let maps = self.maps();
        let base = Route::unpack(maps.route(slot)?).group()?;
        let group = maps.slot_options(base)?.group;
        let set = Set::unpack(maps.set(base)?);
        let places = 0..u32::from(set.count) + u32::from(set.leaving);
        let mut ids = places.filter_map(|place| maps.id(set.offset + place));
        ids.find_map(|id| {
            let row = maps.backend(id)?;
            let address = address(join(&maps.prefix(row.prefix)?, row.host));
            let is_used = row.flags & (FOR_CLUSTER | FOR_LOCAL) != 0;
            let is_it = is_used && SocketAddr::new(address, row.port) == backend;
            is_it.then(|| Choice {
                backend: id,
                generation: row.generation.into(),
                group,
                ..Choice::default()
            })
        })
    }

    /// Checks that the client has an affinity entry for this backend, if the Service has session affinity, and removes it.
    fn noted(&mut self, client: IpAddr, choice: &Choice, target: SocketAddr) -> Result<(), String> {
        if choice.group == 0 {
            return Ok(());
        }
        self.clients
            .is_noted(self.maps(), (client, choice), target)?;
        self.clients.restore(client, choice);
        Ok(())
    }

    /// Time stands still within a scenario.
    pub(crate) fn refresh(&mut self) {
        let now_ns = self.maps().now_ns();
        self.clients.refresh(now_ns);
    }
}

/// What is left of a scenario.
impl World {
    /// Forgets all flows.
    pub(crate) fn forget_flows(&mut self) {
        let ended = self
            .datapath()
            .apps
            .expire_idle(u64::MAX / 2, 1_000_000_000);
        ended.unwrap();
    }

    /// Entries in the maps of Services that belong to no Service any more.
    pub(crate) fn remains(&self) -> Vec<String> {
        let frontends: BpfHashMap<_, FrontendKey, u32> =
            BpfHashMap::try_from(Map::HashMap(pinned(&self.pins, "frontend"))).unwrap();
        let options: BpfHashMap<_, u32, SlotOptions> =
            BpfHashMap::try_from(Map::HashMap(pinned(&self.pins, "slot_option"))).unwrap();
        let frontends = frontends.keys().map(Result::unwrap);
        let frontends = frontends.filter(|key| key.kind != FRONTEND_LOCAL_ADDRESS);
        let frontends = frontends.map(|key| format!("{:?} {key:?}", address(key.address)));
        let options = options.iter().map(|entry| format!("{:?}", entry.unwrap()));
        let used = self.datapath().fill().into_iter().zip(&self.empty);
        let used = used.filter(|(now, before)| now.1 > before.1);
        let used = used.map(|both| format!("{both:?}"));
        frontends.chain(options).chain(used).collect()
    }

    /// The slots that say something.
    pub(crate) fn slots(&self) -> Vec<u32> {
        let maps = self.maps();
        let word = |slot| maps.route(slot).unwrap() | maps.set(slot).unwrap() << 8 >> 8;
        (0..SLOTS_MAX).filter(|slot| word(*slot) != 0).collect()
    }
}

fn pinned(pins: &Path, name: &str) -> MapData {
    MapData::from_pin(pins.join(name)).unwrap()
}

/// An address as maps have it; IPv4 is mapped.
pub(crate) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

pub(crate) fn address(octets: [u8; 16]) -> IpAddr {
    IpAddr::from(octets).to_canonical()
}
