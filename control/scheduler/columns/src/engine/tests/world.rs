//! Random clusters, pods, and what happens to them.

use dormouse_scheduler_decide::{Node, Pod, PodKey};
use fastrand::Rng;
use serde_json::{Value, json};

use super::Engine;

/// What pods have beyond requests, selectors, tolerations and images.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Feature {
    /// Services select them, so that they are spread by default; some have constraints of their own.
    Services,
    /// Required anti-affinity by node or by zone; a few have other terms.
    AntiAffinity,
    /// Nearly all nodes have room for all pods.
    Roomy,
    /// Pods are large, and of many priorities.
    Crowded,
}

pub(super) struct World {
    rng: Rng,
    nodes_len: usize,
    nodes: Vec<String>,
    pods: Vec<PodKey>,
    features: Vec<Feature>,
    named: usize,
    /// Requests are drawn from many values, and not from few.
    is_varied: bool,
    /// The last pod.
    pod: Value,
}

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn one_of(rng: &mut Rng, two: [&'static str; 2]) -> &'static str {
    two[rng.usize(0..2)]
}

impl World {
    pub(super) fn new(seed: u64, nodes_len: usize, features: &[Feature]) -> Self {
        let mut rng = Rng::with_seed(seed);
        Self {
            is_varied: rng.bool(),
            rng,
            nodes_len,
            nodes: Vec::new(),
            pods: Vec::new(),
            features: features.to_vec(),
            named: 0,
            pod: Value::Null,
        }
    }

    pub(super) fn begin(&mut self, engine: &mut Engine) {
        for _ in 0..self.nodes_len {
            self.add_node(engine);
        }
        if self.features.contains(&Feature::Services) {
            for app in 0..3 {
                let service = json!({"metadata": {"name": format!("s{app}"), "namespace": "d"},
                    "spec": {"selector": {"app": format!("a{app}")}}});
                engine.cluster().set_service(&parsed(service));
            }
        }
    }

    /// The number of changes before the next pod.
    pub(super) fn events_len(&mut self) -> usize {
        if self.rng.u8(..4) == 0 {
            self.rng.usize(0..3)
        } else {
            0
        }
    }

    fn name(&mut self, prefix: &str) -> String {
        self.named += 1;
        format!("{prefix}{}", self.named)
    }

    pub(super) fn add_node(&mut self, engine: &mut Engine) {
        let name = self.name("n");
        self.set_node(engine, &name);
        self.nodes.push(name);
    }

    fn set_node(&mut self, engine: &mut Engine, name: &str) {
        let rng = &mut self.rng;
        let mut labels = json!({"disk": one_of(rng, ["ssd", "hdd"])});
        if rng.u8(..20) > 0 {
            labels["kubernetes.io/hostname"] = name.into();
        }
        if rng.u8(..10) > 0 {
            labels["topology.kubernetes.io/zone"] = format!("z{}", rng.u8(..3)).into();
        }
        let is_roomy = self.features.contains(&Feature::Roomy) && rng.u8(..250) > 0;
        let cpu = ["4", "8", "7900m", "0"][usize::from(rng.u8(..10)).saturating_sub(6)];
        let cpu = if is_roomy { "40" } else { cpu };
        let memory = ["16Gi", "32Gi", "32100Mi"][usize::from(rng.u8(..8)).saturating_sub(5)];
        let mut taints = Vec::new();
        for (key, effect) in [
            ("a", "NoSchedule"),
            ("b", "PreferNoSchedule"),
            ("c", "PreferNoSchedule"),
        ] {
            if rng.u8(..6) == 0 && !is_roomy {
                taints.push(json!({"key": key, "effect": effect}));
            }
        }
        let mut images = Vec::new();
        if rng.u8(..4) == 0 {
            images.push(json!({"names": ["big:1"], "sizeBytes": 600_000_000}));
        }
        let node = json!({"metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": rng.u8(..15) == 0 && !is_roomy},
            "status": {"images": images,
                "allocatable": {"cpu": cpu, "memory": memory, "pods": "12", "ephemeral-storage": "50Gi"}}});
        engine.set_node(Node::parse(&parsed(node)).unwrap());
    }

    /// Something happens to a node or a pod.
    pub(super) fn change(&mut self, engine: &mut Engine) {
        let index = |rng: &mut Rng, len: usize| (len > 0).then(|| rng.usize(0..len));
        match self.rng.u8(..8) {
            0 => self.add_node(engine),
            1 => {
                if let Some(at) = index(&mut self.rng, self.nodes.len()) {
                    let name = self.nodes.swap_remove(at);
                    engine.remove_node(&name);
                }
            }
            2 | 3 => {
                if let Some(at) = index(&mut self.rng, self.nodes.len()) {
                    let name = self.nodes[at].clone();
                    self.set_node(engine, &name);
                }
            }
            _ => {
                if let Some(at) = index(&mut self.rng, self.pods.len()) {
                    let key = self.pods.swap_remove(at);
                    engine.remove_pod(&key);
                }
            }
        }
    }

    /// A pod that is to be scheduled.
    pub(super) fn pod(&mut self) -> Pod {
        let name = self.name("p");
        let rng = &mut self.rng;
        let (cpu, memory) = if self.is_varied {
            (rng.u32(0..1_500), rng.u32(0..4_000))
        } else {
            (
                [0, 100, 500, 1_000][rng.usize(0..4)],
                [0, 128, 1_024, 2_048][rng.usize(0..4)],
            )
        };
        let is_crowded = self.features.contains(&Feature::Crowded);
        let cpu = if is_crowded { cpu + 1_300 } else { cpu };
        let priority = rng.u8(..if is_crowded { 5 } else { 2 });
        let mut requests = json!({});
        if cpu > 0 {
            requests["cpu"] = format!("{cpu}m").into();
        }
        if memory > 0 {
            requests["memory"] = format!("{memory}Mi").into();
        }
        if rng.u8(..6) == 0 {
            requests["ephemeral-storage"] = "9Gi".into();
        }
        let app = rng.u8(..4);
        let mut spec = json!({"priority": priority,
            "containers": [{"name": "c", "image": one_of(rng, ["big:1", "other:1"]),
                "resources": {"requests": requests}}]});
        if rng.u8(..4) == 0 {
            spec["nodeSelector"] = json!({"disk": "ssd"});
        }
        if rng.u8(..3) == 0 {
            spec["tolerations"] = json!([{"key": one_of(rng, ["a", "b"]), "operator": "Exists"}]);
        }
        if rng.u8(..30) == 0 {
            spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
        }
        let mut affinity = json!({});
        if rng.u8(..4) == 0 {
            affinity["nodeAffinity"] = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 7, "preference": {"matchExpressions": [
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1", "z2"]}]}},
                {"weight": 3, "preference": {"matchExpressions": [
                    {"key": "disk", "operator": "NotIn", "values": ["hdd"]}]}}]});
        }
        let labels = json!({"app": format!("a{app}")});
        self.add_features(&mut spec, &mut affinity, app);
        spec["affinity"] = affinity;
        let meta = json!({"name": name, "namespace": "d", "labels": labels});
        self.pod = json!({"metadata": meta, "spec": spec});
        Pod::parse(&parsed(self.pod.clone())).unwrap()
    }

    /// A pod like the last one, but for its name.
    pub(super) fn another_pod(&mut self) -> Pod {
        self.pod["metadata"]["name"] = self.name("p").into();
        Pod::parse(&parsed(self.pod.clone())).unwrap()
    }

    fn add_features(&mut self, spec: &mut Value, affinity: &mut Value, app: u8) {
        let rng = &mut self.rng;
        let selector = json!({"matchLabels": {"app": format!("a{app}")}});
        let keys = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"];
        if self.features.contains(&Feature::AntiAffinity) && rng.u8(..3) > 0 {
            let key = keys[usize::from(rng.u8(..6) == 0)];
            affinity["podAntiAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution":
                [{"topologyKey": key, "labelSelector": selector}]});
        }
        if self.features.contains(&Feature::AntiAffinity) && rng.u8(..40) == 0 {
            affinity["podAffinity"] = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 5, "podAffinityTerm": {"topologyKey": keys[1], "labelSelector": selector}}]});
        }
        if self.features.contains(&Feature::Services) && rng.u8(..4) == 0 {
            let action = ["ScheduleAnyway", "DoNotSchedule"][usize::from(rng.u8(..5) == 0)];
            spec["topologySpreadConstraints"] = json!([{"maxSkew": 1 + rng.u8(..3),
                "topologyKey": keys[rng.usize(0..2)], "whenUnsatisfiable": action, "labelSelector": selector}]);
        }
    }

    pub(super) fn bind(&mut self, engine: &mut Engine, pod: Pod, node: &str) {
        self.pods.push(pod.key().clone());
        engine.set_pod(pod.bound(node, None));
    }

    pub(super) fn add_plain_node(&mut self, engine: &mut Engine, name: &str, cpu: &str) {
        let node = json!({"metadata": {"name": name},
            "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}}});
        engine.set_node(Node::parse(&parsed(node)).unwrap());
        self.nodes.push(name.to_owned());
    }
}

pub(super) fn plain_pod(name: &str) -> Pod {
    let requests = json!({"cpu": "400m", "memory": "1Gi"});
    let pod = json!({"metadata": {"name": name, "namespace": "d"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}});
    Pod::parse(&parsed(pod)).unwrap()
}
