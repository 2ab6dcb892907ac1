//! A test bench: maps in user memory, the agent that writes them, and the Services that it follows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use dormouse_agent_services::change::{Event, Object};
use dormouse_agent_services::{
    Changes, Node, NodeAddresses, NodePortAddresses, Prefix, Protocol, Services, Strictness, Vip,
};
use dormouse_agent_services_oracle::{self as oracle, Affinities, Decision, Fate, Packet};
use dormouse_agent_services_samples::objects::{TestObject, World, read};
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{self, Choice, Request, decide};
use dormouse_ebpf::maps::{FRONTEND_LOCAL_ADDRESS, FrontendKey, SlotOptions};
use dormouse_ebpf::service::SLOTS_MAX;
use serde_json::{Value, json};

use crate::arrays::{Arrays, octets};
use crate::cluster;
use crate::grace::Graces;
use crate::pool::Pool;
use crate::services::frontends::number;
use crate::services::group::Role;
use crate::services::{Calls, Ledger, Registry, Served};
use crate::write_through::memory::{Memory, Trie};

/// The maps, which outlive the agent.
pub(super) struct Maps {
    pub(super) arrays: Arrays,
    pub(super) frontends: Memory<FrontendKey, u32>,
    pub(super) slot_options: Memory<u32, SlotOptions>,
    pub(super) source_ranges: Trie,
    pub(super) config: Config,
}

pub(super) struct Bench {
    maps: Maps,
    pool: Pool,
    registry: Registry,
    pub(super) services: Services,
    strictness: Strictness,
    world: World,
    /// One period passes with each change.
    graces: Graces,
}

/// The content of all maps.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Snapshot {
    slots: BTreeMap<u32, (u64, u64, Vec<u32>)>,
    rows: BTreeMap<u32, (u64, u64)>,
    filter: Vec<u64>,
    frontends: BTreeSet<String>,
    slot_options: BTreeSet<String>,
    source_ranges: BTreeSet<String>,
}

/// The possible outcomes for a packet.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug, Clone)]
pub(super) enum Outcome {
    Pass,
    Reject,
    Drop,
    Go(SocketAddr, bool),
}

pub(super) fn node() -> Node {
    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let ranges = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| Prefix::parse(text).unwrap())
            .collect()
    };
    Node {
        name: "node-a".to_owned(),
        addresses: NodeAddresses {
            primary: addresses(&["192.168.0.2", "2001:db8::2"]),
            local: addresses(&[
                "127.0.0.1",
                "192.168.0.2",
                "192.168.1.2",
                "::1",
                "2001:db8::2",
            ]),
        },
        pod_ranges: ranges(&["10.244.0.0/16", "fd00:10:244::/48"]),
        service_ranges: ranges(&["172.30.0.0/16", "fd00:172:30::/112"]),
        node_port_addresses: NodePortAddresses::Within(Vec::new()),
        masquerade_all: false,
    }
}

impl Maps {
    fn calls(&self) -> Calls {
        Calls {
            frontends: Box::new(self.frontends.clone()),
            slot_options: Box::new(self.slot_options.clone()),
            source_ranges: Box::new(self.source_ranges.clone()),
        }
    }

    /// A new agent.
    fn open(&mut self, node: &Node, graces: &Graces) -> (Pool, Registry) {
        let pool = Pool::read(&self.arrays, graces.clone());
        let ranges = &self.config.services[..self.config.services_len as usize];
        let mut registry = Registry::open(&self.arrays, self.calls(), ranges).unwrap();
        let direct = registry.layout(node, 0);
        registry.set_direct(&direct);
        cluster::fill(&mut self.config, node, &direct).unwrap();
        self.config.node_address = octets("2001:db8::2".parse().unwrap());
        registry
            .set_local(&self.arrays, &node.addresses.local)
            .unwrap();
        (pool, registry)
    }
}

impl Bench {
    pub(super) fn new(strictness: Strictness) -> Self {
        Self::in_cluster(node(), strictness)
    }

    pub(super) fn in_cluster(node: Node, strictness: Strictness) -> Self {
        let mut maps = Maps {
            arrays: Arrays::anonymous().unwrap(),
            frontends: Memory::default(),
            slot_options: Memory::default(),
            source_ranges: Trie::default(),
            config: Config::default(),
        };
        let graces = Graces::default();
        let (pool, registry) = maps.open(&node, &graces);
        Self {
            maps,
            pool,
            registry,
            services: Services::new(node, strictness),
            strictness,
            world: World::default(),
            graces,
        }
    }

    pub(super) fn arrays(&self) -> &Arrays {
        &self.maps.arrays
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Backends, prefixes and rows of the arena in use.
    pub(super) fn used(&self) -> [u32; 3] {
        self.pool.used()
    }

    /// Entries for the node's own addresses.
    pub(super) fn locals(&self) -> usize {
        self.registry.frontends.keys(FRONTEND_LOCAL_ADDRESS).len()
    }

    pub(super) fn apply(&mut self, object: &TestObject) {
        self.apply_object(object, true);
    }

    pub(super) fn delete(&mut self, object: &TestObject) {
        self.apply_object(object, false);
    }

    pub(super) fn apply_object(&mut self, object: &TestObject, present: bool) {
        apply(&mut self.services, object, present);
        self.world.apply(object, present);
    }

    pub(super) fn serve(&mut self) -> Served {
        let changes = self.services.sync();
        self.serve_changes(&changes)
    }

    pub(super) fn serve_changes(&mut self, changes: &Changes) -> Served {
        self.graces.pass();
        let ledger = Ledger {
            services: &self.services,
            arrays: &self.maps.arrays,
            pool: &self.pool,
        };
        self.registry.serve(ledger, changes)
    }

    pub(super) fn settle(&mut self) {
        self.graces.pass();
        let ledger = Ledger {
            services: &self.services,
            arrays: &self.maps.arrays,
            pool: &self.pool,
        };
        let served = self.registry.settle(ledger);
        assert!(served.shed.is_empty(), "{served:?}");
    }

    /// Starts another agent without any objects.
    pub(super) fn restart_empty(&mut self) {
        let node = self.services.node().clone();
        (self.pool, self.registry) = self.maps.open(&node, &self.graces);
        self.services = Services::new(node, self.strictness);
        self.world = World::default();
    }

    /// Starts another agent with all objects.
    pub(super) fn restart(&mut self) {
        (self.pool, self.registry) = self.maps.open(self.services.node(), &self.graces);
        self.services = self.all_services();
        self.serve_all();
        self.settle();
    }

    fn all_services(&self) -> Services {
        let node = self.services.node().clone();
        let mut services = Services::new(node, self.strictness);
        for object in self.world.objects() {
            apply(&mut services, object, true);
        }
        services
    }

    fn serve_all(&mut self) {
        let served = self.serve();
        assert!(served.shed.is_empty(), "{served:?}");
    }

    /// The same objects in empty maps.
    pub(super) fn afresh(&self) -> Self {
        let mut fresh = Self::new(self.strictness);
        fresh.services = self.all_services();
        fresh.serve_all();
        fresh
    }

    /// The slot of a cluster IP's port.
    pub(super) fn internal(&self, at: &str) -> u32 {
        let id = &self.services.frontend(&vip(at)).unwrap().port.id;
        let group = self.registry.groups.get(id).unwrap();
        group.slot(Role::Internal).unwrap()
    }

    /// Whether some backend gets the packet.
    pub(super) fn is_served(&self, source: &str, target: &str) -> bool {
        let vip = vip(target);
        let outcomes = self.outcomes(&Packet {
            source: source.parse().unwrap(),
            destination: vip.address,
            port: vip.port,
            protocol: vip.protocol,
        });
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Go(..)))
    }

    /// All outcomes that the maps allow for a packet.
    pub(super) fn outcomes(&self, packet: &Packet) -> BTreeSet<Outcome> {
        let request = Request {
            source: octets(packet.source),
            target: octets(packet.destination),
            port: packet.port,
            protocol: number(packet.protocol),
            from_node: self.services.node().is_local(packet.source),
            ..Request::default()
        };
        let one = |hash: u64| {
            let mut choice = Choice::default();
            match decide(&self.maps, &Request { hash, ..request }, &mut choice) {
                decide::Decision::Pass => Outcome::Pass,
                decide::Decision::Reject(_) => Outcome::Reject,
                decide::Decision::Drop(_) => Outcome::Drop,
                decide::Decision::Forward(_) => {
                    let address = IpAddr::from(choice.address).to_canonical();
                    Outcome::Go(SocketAddr::new(address, choice.port), choice.masquerade)
                }
            }
        };
        (0..64).map(|n| one(n << 26)).collect()
    }

    /// All outcomes that the Services themselves allow.
    pub(super) fn wanted(&self, packet: &Packet) -> BTreeSet<Outcome> {
        match oracle::decide(&self.services, packet, &Affinities::default(), 0) {
            Decision::Pass => [Outcome::Pass].into(),
            Decision::Reject => [Outcome::Reject].into(),
            Decision::Drop => [Outcome::Drop].into(),
            Decision::Translate(translation) => {
                let backends = translation.backends();
                backends
                    .map(|backend| match translation.fate(backend) {
                        Fate::Reject => Outcome::Reject,
                        Fate::Drop => Outcome::Drop,
                        Fate::Deliver { masquerade } => {
                            let place = SocketAddr::new(backend.address, backend.port);
                            Outcome::Go(place, masquerade)
                        }
                    })
                    .collect()
            }
        }
    }

    /// The allocators' counts equal the maps' content.
    pub(super) fn check(&self) {
        let read = Pool::read(&self.maps.arrays, Graces::default());
        assert_eq!(self.pool.used(), read.used(), "backends, prefixes, rows");
        let slots = (0..SLOTS_MAX).filter(|slot| self.maps.arrays.slot(*slot).0.group().is_some());
        let owned: BTreeSet<u32> = self.registry.groups.slots().collect();
        assert_eq!(slots.collect::<BTreeSet<u32>>(), owned);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let arrays = &self.maps.arrays;
        let texts = |texts: Vec<String>| texts.into_iter().collect();
        let mut rows = BTreeMap::new();
        let mut slots = BTreeMap::new();
        for slot in 0..SLOTS_MAX {
            let word = |half| arrays.svc.load(slot as usize * 2 + half).unwrap();
            if word(0) == 0 {
                continue;
            }
            let ids: Vec<u32> = arrays.ids(arrays.slot(slot).1).collect();
            slots.insert(slot, (word(0), word(1), ids));
        }
        for id in 0..1_000 {
            let word = |half| arrays.backend.load(id as usize * 2 + half).unwrap();
            rows.insert(id, (word(0), word(1)));
        }
        let filter = 0..dormouse_ebpf::maps::FRONTEND_FILTER_WORDS as usize;
        let maps = &self.maps;
        Snapshot {
            slots,
            rows,
            filter: filter
                .map(|place| arrays.frontend_filter.load(place).unwrap())
                .collect(),
            frontends: texts(
                maps.frontends
                    .0
                    .lock()
                    .iter()
                    .map(|e| format!("{e:?}"))
                    .collect(),
            ),
            slot_options: texts(
                maps.slot_options
                    .0
                    .lock()
                    .iter()
                    .map(|e| format!("{e:?}"))
                    .collect(),
            ),
            source_ranges: texts(
                maps.source_ranges
                    .0
                    .0
                    .lock()
                    .iter()
                    .map(|e| format!("{e:?}"))
                    .collect(),
            ),
        }
    }
}

pub(super) fn apply(services: &mut Services, object: &TestObject, present: bool) {
    let object = match object {
        TestObject::Service(service) => Object::Service(service),
        TestObject::Slice(slice) => Object::EndpointSlice(slice),
        TestObject::Node(node) => Object::Node(node),
    };
    services.apply(&if present {
        Event::Applied(object)
    } else {
        Event::Deleted(object)
    });
}

/// "address:port", TCP.
pub(super) fn vip(text: &str) -> Vip {
    let address: SocketAddr = text.parse().unwrap();
    Vip {
        address: address.ip(),
        port: address.port(),
        protocol: Protocol::Tcp,
    }
}

/// A Service in `default` with port 80 and further fields of its spec.
pub(super) fn service(name: &str, cluster_ip: &str, more: &Value) -> TestObject {
    let mut spec = json!({
        "type": "ClusterIP", "clusterIP": cluster_ip, "clusterIPs": [cluster_ip],
        "ipFamilies": ["IPv4"], "ports": [{"port": 80}],
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let metadata = json!({"namespace": "default", "name": name});
    read(
        TestObject::Service,
        json!({"metadata": metadata, "spec": spec}),
    )
}

/// Sets the addresses of a load balancer.
pub(super) fn balance(service: &mut TestObject, addresses: &[&str]) {
    if let TestObject::Service(service) = service {
        let ingress: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        let status = json!({"loadBalancer": {"ingress": ingress}});
        service.status = Some(serde_json::from_value(status).unwrap());
    }
}

/// Sets the creation time.
pub(super) fn created(mut service: TestObject, time: &str) -> TestObject {
    if let TestObject::Service(service) = &mut service {
        service.metadata.creation_timestamp = Some(serde_json::from_value(json!(time)).unwrap());
    }
    service
}

/// The only slice of a service: these endpoints on port 8080, which has this name.
pub(super) fn slice(service: &str, port: &str, endpoints: &[Value]) -> TestObject {
    let labels = json!({"kubernetes.io/service-name": service});
    let object = json!({
        "metadata": {"namespace": "default", "name": service, "labels": labels},
        "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{"name": port, "protocol": "TCP", "port": 8080}],
    });
    read(TestObject::Slice, object)
}

/// An endpoint on another node.
pub(super) fn endpoint(address: &str, ready: bool) -> Value {
    json!({"addresses": [address], "nodeName": "node-b", "conditions": {"ready": ready}})
}
