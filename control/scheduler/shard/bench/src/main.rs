//! The cost of a pod in the sharded scheduler, and where it goes: with members as simulated machines, where each message costs the
//! time that its encoding, decoding and handling take here, and a delay, in virtual time; and with members as processes of this
//! machine.
#![forbid(unsafe_code)]

mod machines;

mod objects;

mod processes;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use dormouse_rows::Row;

use machines::{Cost, Machines, Shape};

/// Arguments of a run.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Numbers of shards
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,256")]
    shards: Vec<usize>,
    /// Nodes of the cluster
    #[arg(long, default_value_t = 102_400)]
    nodes: usize,
    /// Pods that are measured
    #[arg(long, default_value_t = 50)]
    pods: usize,
    /// Attempts in flight, for each of which there are rows: with one, every decision is that of one scheduler
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    windows: Vec<usize>,
    /// Children of a member in the tree
    #[arg(long, default_value_t = 16)]
    fan_out: usize,
    /// Delay of a message, in microseconds
    #[arg(long, default_value_t = 50)]
    delay_us: u64,
    /// Numbers of shards as processes of this machine; 0 for no such rows
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    processes: Vec<usize>,
    /// Shards in processes for which there is a relay
    #[arg(long, default_value_t = 4)]
    shards_of_relay: usize,
    /// Nodes of the cluster of processes
    #[arg(long, default_value_t = 10_000)]
    process_nodes: usize,
    /// Pods that are measured with processes
    #[arg(long, default_value_t = 200)]
    process_pods: usize,
}

#[derive(Subcommand)]
enum Command {
    /// Run a member until it is killed
    #[command(hide = true)]
    Member(processes::Options),
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    dormouse_rows::end(match options.command.take() {
        Some(Command::Member(member)) => processes::run(member),
        None => run(&options),
    })
}

fn run(options: &Options) -> Result<()> {
    for &window in &options.windows {
        for &shards in &options.shards {
            let shape = Shape {
                shards,
                nodes: options.nodes,
                window,
                fan_out: options.fan_out,
                delay: Duration::from_micros(options.delay_us),
            };
            let cost = measure(shape, options.pods)?;
            report(shape, &cost)?;
        }
    }
    run_processes(options)
}

fn run_processes(options: &Options) -> Result<()> {
    let pods = options.process_pods;
    ensure!(pods > 0, "at least one pod");
    for &window in &options.windows {
        for &shards in options.processes.iter().filter(|shards| **shards > 0) {
            let relays = shards / options.shards_of_relay.max(1);
            let shape = processes::Shape {
                shards,
                relays: if relays > 1 { relays } else { 0 },
                nodes: options.process_nodes,
                window,
            };
            report_processes(shape, &processes::measure(shape, pods)?)?;
        }
    }
    Ok(())
}

fn report_processes(shape: processes::Shape, cost: &processes::Cost) -> Result<()> {
    let processes::Shape {
        shards,
        relays,
        nodes,
        window,
    } = shape;
    let of = |what: &str| {
        format!(
            "processes: {shards} shards, {relays} relays, {nodes} nodes, {window} in flight: {what}"
        )
    };
    for (what, figure) in [
        ("pod, wall clock over all pods", cost.time),
        ("CPU of the leader for a pod", cost.leader),
        ("CPU of all relays for a pod", cost.relays),
        ("CPU of the busiest shard for a pod", cost.shard),
        ("CPU of all shards for a pod", cost.shards),
    ] {
        Row::new(of(what), figure.as_secs_f64() * 1e6, "us").print()?;
    }
    Ok(())
}

/// Binds one pod, so that all members have what they need, then the pods that are measured.
fn measure(shape: Shape, pods: usize) -> Result<Cost> {
    ensure!(
        shape.shards > 0 && pods > 0,
        "at least one shard and one pod"
    );
    let mut machines = Machines::new(shape)?;
    machines.bind(1)?;
    machines.begin_measurement();
    machines.bind(pods)?;
    Ok(machines.cost(pods))
}

fn report(shape: Shape, cost: &Cost) -> Result<()> {
    let Shape {
        shards,
        nodes,
        window,
        ..
    } = shape;
    let of = |what: &str| format!("{shards} shards, {nodes} nodes, {window} in flight: {what}");
    for (what, figure) in [
        ("pod, virtual time", cost.time),
        ("CPU of the leader for a pod", cost.leader),
        ("CPU of the busiest relay for a pod", cost.relay),
        ("CPU of the busiest shard for a pod", cost.shard),
        ("CPU of all shards for a pod", cost.shards),
        ("CPU of all members for the codec of a pod", cost.codec),
    ] {
        Row::new(of(what), figure.as_secs_f64() * 1e6, "us").print()?;
    }
    Row::new(of("messages for a pod"), cost.messages, "").print()?;
    Row::new(of("bytes for a pod"), cost.bytes, "B").print()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_in_processes_are_named_as_arguments() {
        let arguments = [
            "bench",
            "member",
            "shard",
            "--name=m0",
            "--store=http://[::1]:1",
            "--window=1",
        ];
        assert!(Options::try_parse_from(arguments).is_ok());
    }

    #[test]
    fn each_member_has_its_share_of_the_cost() {
        for (shards, window) in [(1, 1), (20, 4)] {
            let shape = Shape {
                shards,
                nodes: 40,
                window,
                fan_out: 4,
                delay: Duration::from_micros(50),
            };
            let cost = measure(shape, 8).unwrap();
            // A question to each shard and its answer, at least three times: counts, filters, scores, totals; and the claim.
            let least = 8 * shards + 2;
            assert!(cost.messages >= f64::from(u32::try_from(least).unwrap()));
            assert!(cost.shard > Duration::ZERO && cost.shard <= cost.shards);
            assert_eq!(cost.relay > Duration::ZERO, shards > 4);
            assert!(cost.leader > Duration::ZERO && cost.codec > Duration::ZERO);
            assert!(window > 1 || cost.time > 8 * shape.delay);
        }
    }
}
