//! The folder of manifests that the agents follow: whole files, moved into place.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Where one backend of a service is.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) address: IpAddr,
    pub(crate) node: String,
    /// Ready, or still serving while it terminates, or neither.
    pub(crate) condition: Condition,
}

/// An endpoint's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Ready,
    NotReady,
    Terminating,
}

impl End {
    pub(crate) fn with(&self, condition: Condition) -> Self {
        Self {
            condition,
            ..self.clone()
        }
    }
}

/// A service with one port, 80, for TCP and UDP, and its slices.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    name: String,
    spec: Value,
    port: u16,
    node_port: Option<u16>,
    target_port: u16,
    ends: Vec<End>,
    ingress: Vec<&'static str>,
}

/// A service at these cluster IPs, whose backends listen on `target_port`.
pub(crate) fn service(name: &str, ips: &[&str], target_port: u16) -> Service {
    let families: Vec<_> = ips
        .iter()
        .map(|ip| if ip.contains(':') { "IPv6" } else { "IPv4" })
        .collect();
    let policy = if ips.len() > 1 {
        "RequireDualStack"
    } else {
        "SingleStack"
    };
    Service {
        name: name.to_owned(),
        spec: json!({
            "type": "ClusterIP", "clusterIP": ips[0], "clusterIPs": ips,
            "ipFamilies": families, "ipFamilyPolicy": policy,
        }),
        port: 80,
        node_port: None,
        target_port,
        ends: Vec::new(),
        ingress: Vec::new(),
    }
}

impl Service {
    /// Replaces its endpoints.
    pub(crate) fn to(mut self, ends: &[End]) -> Self {
        self.ends = ends.to_vec();
        self
    }

    /// Another port than 80.
    pub(crate) fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Opens a node port.
    pub(crate) fn node_port(mut self, port: u16) -> Self {
        self.spec["type"] = "NodePort".into();
        self.node_port = Some(port);
        self
    }

    /// Sets fields of its spec.
    pub(crate) fn with(mut self, more: &Value) -> Self {
        for (key, value) in more.as_object().unwrap() {
            self.spec[key] = value.clone();
        }
        self
    }

    /// Makes it a load balancer, with these fields of its spec.
    pub(crate) fn balanced(self, more: &Value) -> Self {
        self.with(&json!({"type": "LoadBalancer"})).with(more)
    }

    /// Gives the load balancer one more address.
    pub(crate) fn ingress(mut self, address: &'static str) -> Self {
        self.ingress.push(address);
        self
    }

    fn objects(&self) -> Vec<Value> {
        let port = |name: &str, protocol: &str| {
            let mut port = json!({"name": name, "protocol": protocol, "port": self.port, "targetPort": self.target_port});
            if let Some(number) = self.node_port {
                port["nodePort"] = number.into();
            }
            port
        };
        let mut spec = self.spec.clone();
        spec["ports"] = json!([port("t", "TCP"), port("u", "UDP")]);
        let mut object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": "test", "name": self.name}, "spec": spec,
        });
        if !self.ingress.is_empty() {
            let ingress: Vec<_> = self.ingress.iter().map(|ip| json!({"ip": ip})).collect();
            object["status"] = json!({"loadBalancer": {"ingress": ingress}});
        }
        let slices = [("IPv6", true), ("IPv4", false)].map(|(kind, v6)| self.slice(kind, v6));
        [object].into_iter().chain(slices).collect()
    }

    fn slice(&self, kind: &str, v6: bool) -> Value {
        let ends = self.ends.iter().filter(|end| end.address.is_ipv6() == v6);
        let endpoints: Vec<_> = ends
            .map(|end| {
                let (ready, terminating) = match end.condition {
                    Condition::Ready => (true, false),
                    Condition::NotReady => (false, false),
                    Condition::Terminating => (false, true),
                };
                json!({
                    "addresses": [end.address], "nodeName": end.node,
                    "conditions": {
                        "ready": ready, "serving": ready || terminating, "terminating": terminating,
                    },
                })
            })
            .collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": kind,
            "metadata": {
                "namespace": "test", "name": format!("{}-{}", self.name, kind.to_lowercase()),
                "labels": {"kubernetes.io/service-name": self.name},
            },
            "ports": [
                {"name": "t", "protocol": "TCP", "port": self.target_port},
                {"name": "u", "protocol": "UDP", "port": self.target_port},
            ],
            "endpoints": endpoints,
        })
    }
}

/// The health check node port of the service that marks which write an agent has in force.
pub(crate) const MARK_PORT: u16 = 30_999;
/// The node port of that service.
pub(crate) const MARK_NODE_PORT: u16 = 30_998;
/// No two changes in a row leave the same mark.
const MARKS: usize = 8;

/// The folder.
pub(crate) struct Manifests {
    folder: PathBuf,
    nodes: Vec<String>,
    services: BTreeMap<String, Vec<Value>>,
    changes: usize,
}

impl Manifests {
    /// An empty folder, but for the mark.
    pub(crate) fn new(folder: &Path, nodes: &[&str]) -> Self {
        fs::create_dir_all(folder).unwrap();
        let mut manifests = Self {
            folder: folder.to_owned(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            services: BTreeMap::new(),
            changes: 0,
        };
        manifests.write();
        manifests
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Notes a service for the next write.
    pub(crate) fn note(&mut self, service: &Service) {
        self.services
            .insert(service.name.clone(), service.objects());
    }

    /// Whether the service was noted as it is.
    pub(crate) fn has(&self, service: &Service) -> bool {
        self.services.get(&service.name) == Some(&service.objects())
    }

    /// Writes everything as one file: one change.
    pub(crate) fn write(&mut self) {
        self.changes += 1;
        let mark = self.marking();
        let items: Vec<_> = self.services.values().flatten().chain(&mark).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.put("services.json", &list);
    }

    /// Moves one file of other services into place.
    pub(crate) fn put_file(&self, name: &str, services: &[Service]) {
        let items: Vec<_> = services.iter().flat_map(Service::objects).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.put(name, &list);
    }

    /// Removes such a file.
    pub(crate) fn remove_file(&self, name: &str) {
        fs::remove_file(self.folder.join(name)).unwrap();
    }

    fn put(&self, name: &str, list: &Value) {
        let hidden = self.folder.join(format!(".{name}"));
        fs::write(&hidden, list.to_string()).unwrap();
        fs::rename(&hidden, self.folder.join(name)).unwrap();
    }

    /// A part of what the mark's health port answers once the last write is in force.
    pub(crate) fn mark(&self) -> String {
        format!("\"localEndpoints\": {},", 1 + self.changes % MARKS)
    }

    /// A service of its own, of which only the number of endpoints is looked at: an agent opens and changes health ports
    /// after everything else of a change.
    fn marking(&self) -> Vec<Value> {
        let count = 1 + self.changes % MARKS;
        let ends: Vec<_> = (self.nodes.iter().zip(1..))
            .flat_map(|(node, number)| {
                (0..count).map(move |place| End {
                    address: format!("2001:db8:dead:{number}::{place:x}")
                        .parse()
                        .unwrap(),
                    node: node.clone(),
                    condition: Condition::Ready,
                })
            })
            .collect();
        let marking = service("mark", &["fd00:20::ffff"], 1)
            .node_port(MARK_NODE_PORT)
            .balanced(&json!({
                "externalTrafficPolicy": "Local", "healthCheckNodePort": MARK_PORT,
            }))
            .to(&ends);
        marking.objects()
    }
}
