//! Nodes and pods of the benchmark, and the run that places the pods.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_scheduler_columns::{Decision, Engine};
use dormouse_scheduler_decide::{DEFAULT_SCHEDULER, Node, Pod, Profile};
use fastrand::Rng;
use k8s_openapi::api::core::v1::{Node as ApiNode, Pod as ApiPod};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The number of values of which unique requests are drawn, for each resource.
const VALUES: u32 = 1_000_000;
/// Zones of the nodes.
const ZONES: usize = 16;
/// The order of pods is the same in each run.
const SEED: u64 = 36;

/// Nodes.
#[derive(Clone, Copy)]
pub(crate) enum Nodes {
    /// 32 CPU, 256 GiB, 110 pods: those of k8s-1m.
    Equal,
    /// Room for four of the largest unique pods.
    Large,
}

/// Pods, each kind with what makes classes of them.
#[derive(Clone, Copy)]
pub(crate) enum Pods {
    /// All the same.
    Equal,
    /// Of so many classes, interleaved at random.
    Classes(usize),
    /// CPU and memory of each are drawn from a million values.
    Unique,
    /// Of so many deployments, each with a Service, so that they are spread by default.
    Spread(usize),
    /// Of so many deployments, of which a node has one pod at most.
    Apart(usize),
}

/// A cluster and its pods.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) nodes: Nodes,
    pub(crate) nodes_len: usize,
    pub(crate) pods: Pods,
    pub(crate) pods_len: usize,
    /// Percent of the nodes that are enough if they are feasible; 0 for the default.
    pub(crate) percentage: i32,
}

/// What a run took.
pub(crate) struct Run {
    pub(crate) engine: Engine,
    pub(crate) elapsed: Duration,
    /// Nodes, or groups of equal nodes, that one decision looked at on average.
    pub(crate) looked_at: f64,
}

fn object<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).context("failed to make an object")
}

impl Nodes {
    fn template(self) -> Result<ApiNode> {
        let allocatable = match self {
            Self::Equal => json!({"cpu": "32", "memory": "256Gi", "pods": "110"}),
            Self::Large => json!({"cpu": "4000", "memory": "62500Mi", "pods": "110"}),
        };
        let labels = json!({"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "kwok", "topology.kubernetes.io/region": "r"});
        object(json!({"metadata": {"labels": labels},
            "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}}))
    }
}

fn named(template: &ApiNode, index: usize) -> Result<Node> {
    let mut node = template.clone();
    let name = format!("node-{index:07}");
    let labels = node.metadata.labels.get_or_insert_default();
    labels.insert("kubernetes.io/hostname".to_owned(), name.clone());
    let zone = format!("zone-{}", index % ZONES);
    labels.insert("topology.kubernetes.io/zone".to_owned(), zone);
    node.metadata.name = Some(name);
    Node::parse(&node).context("failed to parse a node")
}

impl Pods {
    fn classes_len(self) -> usize {
        match self {
            Self::Equal | Self::Unique => 1,
            Self::Classes(len) | Self::Spread(len) | Self::Apart(len) => len,
        }
    }

    fn template(self, class: usize) -> Result<ApiPod> {
        let requests = match self {
            Self::Classes(_) | Self::Spread(_) => {
                json!({"cpu": format!("{}m", 100 + class % 37 * 10), "memory": format!("{}Mi", 100 + class)})
            }
            Self::Equal | Self::Unique | Self::Apart(_) => {
                json!({"cpu": "100m", "memory": "100Mi"})
            }
        };
        let app = format!("app-{class}");
        let affinity = match self {
            Self::Apart(_) => {
                json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}]}})
            }
            _ => Value::Null,
        };
        let container = json!({"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}});
        object(
            json!({"metadata": {"namespace": "default", "labels": {"app": app}},
            "spec": {"affinity": affinity, "containers": [container]}}),
        )
    }
}

fn pod(template: &ApiPod, index: usize) -> Result<Pod> {
    let mut pod = template.clone();
    pod.metadata.name = Some(format!("pod-{index:07}"));
    pod.metadata.uid = Some(format!("00000000-0000-4000-8000-{index:012}"));
    Pod::parse(&pod).context("failed to parse a pod")
}

/// Gives the only container of a pod requests of its own.
fn make_unique(template: &mut ApiPod, rng: &mut Rng) {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    let containers = template
        .spec
        .iter_mut()
        .flat_map(|spec| &mut spec.containers);
    for container in containers {
        let resources = container.resources.get_or_insert_default();
        let requests = resources.requests.get_or_insert_default();
        let cpu = format!("{}m", rng.u32(1..=VALUES));
        requests.insert("cpu".to_owned(), Quantity(cpu));
        let memory = format!("{}Ki", rng.u32(1..=VALUES) * 16);
        requests.insert("memory".to_owned(), Quantity(memory));
    }
}

impl Load {
    pub(crate) fn profile(self) -> Profile {
        Profile::default().with_percentage(self.percentage)
    }

    /// The nodes of the cluster.
    pub(crate) fn nodes(self) -> Result<impl Iterator<Item = Result<Node>>> {
        let template = self.nodes.template()?;
        Ok((0..self.nodes_len).map(move |index| named(&template, index)))
    }

    /// Adds Services, where pods are spread by them.
    pub(crate) fn set_services(
        self,
        cluster: &mut dormouse_scheduler_decide::Snapshot,
    ) -> Result<()> {
        let Pods::Spread(len) = self.pods else {
            return Ok(());
        };
        for class in 0..len {
            let service = json!({"metadata": {"namespace": "default", "name": format!("app-{class}")},
                "spec": {"selector": {"app": format!("app-{class}")}}});
            cluster.set_service(&object(service)?);
        }
        Ok(())
    }

    /// The pods in the order in which they are placed; `share` lets each share memory with equal ones.
    pub(crate) fn pods(self, mut share: impl FnMut(&mut Pod)) -> Result<Vec<Pod>> {
        let mut rng = Rng::with_seed(SEED);
        let classes = 0..self.pods.classes_len();
        let templates = classes.map(|class| self.pods.template(class));
        let mut templates = templates.collect::<Result<Vec<_>>>()?;
        let all = (0..self.pods_len).map(|index| {
            let class = rng.usize(0..templates.len());
            if let Pods::Unique = self.pods {
                make_unique(&mut templates[class], &mut rng);
            }
            let mut pod = pod(&templates[class], index)?;
            share(&mut pod);
            Ok(pod)
        });
        all.collect()
    }

    /// An engine with the cluster.
    pub(crate) fn engine(self) -> Result<Engine> {
        let mut engine = Engine::new(vec![self.profile()], SEED);
        for node in self.nodes()? {
            engine.set_node(node?);
        }
        self.set_services(engine.cluster())?;
        Ok(engine)
    }

    /// Places all pods. They are parsed before, and the index is built.
    pub(crate) fn run(self) -> Result<Run> {
        let mut engine = self.engine()?;
        let pods = self.pods(|pod| engine.share(pod))?;
        if let Some(first) = pods.first() {
            engine.decide(DEFAULT_SCHEDULER, first);
        }
        let before = engine.looked_at();
        let begin = Instant::now();
        let mut failed = None;
        engine.place_all(DEFAULT_SCHEDULER, pods, |decision| {
            if !matches!(decision, Decision::Placed { .. }) {
                failed.get_or_insert(decision);
            }
        });
        let elapsed = begin.elapsed();
        ensure!(failed.is_none(), "a pod was not placed: {failed:?}");
        let looked_at = (engine.looked_at() - before) as f64 / self.pods_len as f64;
        Ok(Run {
            engine,
            elapsed,
            looked_at,
        })
    }
}
