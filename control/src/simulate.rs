//! `dormouse scheduler simulate`: the nodes that kube-scheduler's decisions give to pods, from files and without a cluster.

mod defaults;
mod objects;
mod placing;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dormouse_command::{Columns, CommandError, Exit, OutputFormat, screen_width, write_value};
use dormouse_scheduler_decide::Profile;
use serde_json::json;

use crate::cli::{self, codes::Code};
use placing::{Placed, Simulation};

/// The end of the command's help.
pub const EXAMPLE: &str = "\
Example:
  kubectl get nodes,pods,services,replicasets -A -o json > cluster.json
  dormouse scheduler simulate --nodes cluster.json --pods new-pods.yaml

Pods that have a node use its resources; the others are scheduled one after the other, those of higher priority first, and each counts
for the next ones. Victims of preemption are gone at once. The exit status is 1 if a pod has no node in the end.";

const HEADINGS: [&str; 5] = ["POD", "NODE", "SCORE", "EQUAL", "REASON"];

/// The arguments.
#[derive(Debug, Args)]
pub struct Arguments {
    /// File of nodes and other objects of the cluster, YAML or JSON, also lists as kubectl prints them
    #[arg(long, required = true, value_name = "FILE")]
    nodes: Vec<PathBuf>,
    /// File of pods, likewise
    #[arg(long, required = true, value_name = "FILE")]
    pods: Vec<PathBuf>,
    /// File of a KubeSchedulerConfiguration (v1); without it, kube-scheduler's defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format
    #[arg(short, long)]
    output: Option<OutputFormat>,
}

/// Runs the command; an error is printed to stderr.
pub fn main(arguments: &Arguments) -> ExitCode {
    let mut stdout = io::stdout();
    let width = screen_width(&stdout);
    match run(arguments, &mut stdout, width) {
        Ok(exit) => exit.into(),
        Err(error) => cli::fail(&error),
    }
}

fn run(
    arguments: &Arguments,
    out: &mut dyn Write,
    width: Option<usize>,
) -> Result<Exit, CommandError> {
    let mut simulation = Simulation::new(profiles(arguments)?);
    for file in arguments.nodes.iter().chain(&arguments.pods) {
        for object in objects::read(file)? {
            simulation
                .add(&object.kind, object.value)
                .map_err(|reason| objects::unreadable(&object.place, &reason))?;
        }
    }
    let placed = simulation.run();
    match arguments.output {
        Some(format @ (OutputFormat::Json | OutputFormat::Yaml)) => {
            let pods: Vec<_> = placed.iter().map(Placed::to_json).collect();
            let value = json!({"kind": "SchedulerSimulation", "pods": pods});
            write_value(out, &value, format)?;
        }
        Some(OutputFormat::Name) => {
            for pod in &placed {
                writeln!(out, "{} {}", pod.key, pod.node.as_deref().unwrap_or("-"))?;
            }
        }
        Some(OutputFormat::Wide) | None => {
            let headings = HEADINGS.map(str::to_owned).to_vec();
            let rows: Vec<_> = [headings]
                .into_iter()
                .chain(placed.iter().map(Placed::cells))
                .collect();
            Columns::for_width(width).write_all(out, &rows)?;
        }
    }
    let all = placed.iter().all(|pod| pod.node.is_some());
    Ok(if all { Exit::Yes } else { Exit::No })
}

fn profiles(arguments: &Arguments) -> Result<Vec<Profile>, CommandError> {
    let Some(file) = &arguments.config else {
        return Ok(vec![Profile::default()]);
    };
    let place = file.display().to_string();
    let document = objects::text(file)?;
    let document = serde_saphyr::from_str(&document)
        .map_err(|error| objects::unreadable(&place, &error.to_string()))?;
    Profile::parse_configuration(&document).map_err(|error| {
        CommandError::new(
            Code::Manifest,
            Exit::No,
            format!("cannot use {place}: {error}"),
            "remove the field, or run kube-scheduler for the pods that need it",
        )
    })
}

#[cfg(test)]
mod tests;
