//! Connections at a rate from the client host's addresses, and their times.

use std::net::SocketAddrV6;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_world::Program;
use serde_json::Value;

use super::super::dataplane::Bench;
use super::super::dataplane::load::finish;

/// The clients' addresses, outside the pods' range.
pub(super) const CLIENTS: [&str; 4] = [
    "2001:db8:c0::101",
    "2001:db8:c0::102",
    "2001:db8:c0::103",
    "2001:db8:c0::104",
];
const THREADS: &str = "32";

/// Connections at a rate.
#[derive(Clone, Copy)]
pub(super) struct Rate {
    pub(super) per_second: u32,
    pub(super) length: Duration,
}

/// Times of connections in milliseconds, and their numbers.
pub(super) struct Times {
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) per_second: f64,
    pub(super) failed: f64,
}

/// Connections of the clients to a target.
pub(super) fn connect(bench: &Bench<'_>, target: SocketAddrV6, rate: Rate) -> Result<Times> {
    let program = Program::new(&bench.load)
        .args(["client", "--threads", THREADS])
        .args(["--per-second", &rate.per_second.to_string()])
        .args(["--milliseconds", &rate.length.as_millis().to_string()])
        .args(["--from", &CLIENTS.join(","), &target.to_string()]);
    let outcome = finish(bench, bench.world.client(), program, rate.length)?;
    let number = |name: &str| {
        let number = outcome.get(name).and_then(Value::as_f64);
        number.with_context(|| format!("the load printed no `{name}`: {outcome}"))
    };
    let answered = number("connections")?;
    ensure!(answered > 0.0, "no connection was answered: {outcome}");
    Ok(Times {
        p99: number("p99")? / 1e3,
        p999: number("p99.9")? / 1e3,
        per_second: answered / number("seconds")?,
        failed: number("failures")?,
    })
}
