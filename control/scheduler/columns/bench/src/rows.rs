//! The rows of the report, in groups that can run alone.

use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use dormouse_rows::process::Process;
use dormouse_rows::{Bound, Row, say};
use dormouse_scheduler_decide::{Scheduler, Snapshot};

use crate::load::{Load, Nodes, Pods};

/// Measures the scheduler's decisions; each row is a line of JSON on standard output
#[derive(Parser)]
pub(crate) struct Options {
    /// Nodes of the large clusters
    #[arg(long, default_value_t = 1_000_000)]
    nodes: usize,
    /// Pods that are placed on them
    #[arg(long, default_value_t = 1_000_000)]
    pods: usize,
    /// Run only these groups of rows
    #[arg(long, value_delimiter = ',', value_name = "GROUP")]
    only: Vec<String>,
}

type Group = (&'static str, fn(&Options) -> Result<()>);

/// All groups, in the order of the report. Memory is first: it is measured of the whole process.
const GROUPS: [Group; 9] = [
    ("memory", memory),
    ("equal", equal),
    ("classes", classes),
    ("unique", unique),
    ("unique-all", unique_all),
    ("spread", spread),
    ("apart", apart),
    ("small", small),
    ("reference", reference),
];

pub(crate) fn run(options: &Options) -> Result<()> {
    for (name, group) in GROUPS {
        if options.only.is_empty() || options.only.iter().any(|only| only == name) {
            say(name);
            group(options)?;
        }
    }
    Ok(())
}

impl Options {
    fn load(&self, nodes: Nodes, pods: Pods, percentage: i32) -> Load {
        Load {
            nodes,
            nodes_len: self.nodes,
            pods,
            pods_len: self.pods,
            percentage,
        }
    }
}

/// A row of the time that all decisions take.
fn seconds(name: &str, load: Load, most: Option<f64>) -> Result<()> {
    let run = load.run()?;
    let row = Row::new(name, run.elapsed.as_secs_f64(), "s");
    let row = match most {
        Some(most) => row.must(Bound::AtMost(most)),
        None => row,
    };
    row.print()?;
    let share = run.looked_at / load.nodes_len as f64 * 100.0;
    Row::new(
        format!("{name}: nodes or groups of equal nodes looked at, share"),
        share,
        "%",
    )
    .print()
}

/// A row of the pods that are placed in a second.
fn rate(name: &str, load: Load, least: f64) -> Result<()> {
    let run = load.run()?;
    let rate = load.pods_len as f64 / run.elapsed.as_secs_f64();
    Row::new(name, rate, "pods/s")
        .must(Bound::AtLeast(least))
        .print()
}

fn memory(options: &Options) -> Result<()> {
    let load = options.load(Nodes::Equal, Pods::Classes(1_000), 100);
    let own = Process(std::process::id());
    let before = own.resident()?;
    let run = load.run()?;
    let resident = own.resident()?.saturating_sub(before);
    drop(run.engine);
    Row::new(
        "memory with all pods placed, 1,000 classes",
        resident as f64 / 1e6,
        "MB",
    )
    .must(Bound::AtMost(1_000.0))
    .print()
}

fn equal(options: &Options) -> Result<()> {
    let all = options.load(Nodes::Equal, Pods::Equal, 100);
    seconds("A: equal pods, all nodes", all, Some(1.0))?;
    let sampled = options.load(Nodes::Equal, Pods::Equal, 0);
    seconds("A: equal pods, default share of the nodes", sampled, None)
}

fn classes(options: &Options) -> Result<()> {
    let load = options.load(Nodes::Equal, Pods::Classes(1_000), 100);
    seconds("B: 1,000 interleaved classes, all nodes", load, Some(30.0))
}

fn unique(options: &Options) -> Result<()> {
    let load = options.load(Nodes::Large, Pods::Unique, 0);
    seconds(
        "C: unique pods, default share of the nodes",
        load,
        Some(45.0),
    )
}

fn unique_all(options: &Options) -> Result<()> {
    let load = options.load(Nodes::Large, Pods::Unique, 100);
    seconds("D: unique pods, all nodes", load, Some(120.0))
}

fn spread(options: &Options) -> Result<()> {
    let load = options.load(Nodes::Equal, Pods::Spread(1_000), 100);
    seconds(
        "E: default spread, 1,000 deployments, all nodes",
        load,
        Some(60.0),
    )
}

fn apart(_options: &Options) -> Result<()> {
    for (percentage, nodes) in [(0, "default share of the nodes"), (100, "all nodes")] {
        let load = Load {
            nodes: Nodes::Equal,
            nodes_len: 5_000,
            pods: Pods::Apart(100),
            pods_len: 100_000,
            percentage,
        };
        rate(
            &format!("F: anti-affinity by host name, 5k nodes, {nodes}"),
            load,
            50e3,
        )?;
    }
    Ok(())
}

fn small(_options: &Options) -> Result<()> {
    for (percentage, nodes) in [(0, "default share of the nodes"), (100, "all nodes")] {
        let load = Load {
            nodes: Nodes::Equal,
            nodes_len: 5_000,
            pods: Pods::Equal,
            pods_len: 50_000,
            percentage,
        };
        rate(&format!("G: equal pods, 5k nodes, {nodes}"), load, 100e3)?;
    }
    Ok(())
}

/// The engine beside the slow reference, which decides node by node.
fn reference(_options: &Options) -> Result<()> {
    let loads = [
        ("equal pods", Pods::Equal),
        ("unique pods", Pods::Unique),
        ("default spread, 10 deployments", Pods::Spread(10)),
        (
            "anti-affinity by host name, 10 deployments",
            Pods::Apart(10),
        ),
    ];
    for (name, pods) in loads {
        let load = Load {
            nodes: Nodes::Large,
            nodes_len: 1_000,
            pods,
            pods_len: 1_000,
            percentage: 100,
        };
        let own = load.run()?.elapsed.as_secs_f64();
        let peer = node_by_node(load)?;
        let us = 1e6 / load.pods_len as f64;
        Row::new(
            format!("beside the reference, 1k nodes: {name}"),
            own * us,
            "us",
        )
        .against(peer * us)
        .print()?;
    }
    Ok(())
}

/// Seconds in which the slow reference places all pods.
fn node_by_node(load: Load) -> Result<f64> {
    let mut cluster = Snapshot::default();
    for node in load.nodes()? {
        cluster.set_node(node?);
    }
    load.set_services(&mut cluster)?;
    let pods = load.pods(|_| {})?;
    let mut scheduler = Scheduler::new(load.profile());
    cluster.refresh();
    let begin = Instant::now();
    for (index, pod) in pods.into_iter().enumerate() {
        let attempt = scheduler.attempt(&cluster, &pod);
        let random = u64::try_from(index)
            .unwrap_or(0)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if let Some(node) = attempt.draw(random) {
            cluster.set_pod(pod.bound(node, None));
            cluster.refresh();
        }
    }
    Ok(begin.elapsed().as_secs_f64())
}
