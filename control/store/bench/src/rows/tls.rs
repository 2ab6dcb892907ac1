//! Requests to the store over TLS and in plain text, as the roles of a control plane send them: CPU time of the server, and of both sides.

use std::time::Duration;

use anyhow::{Context, Result};
use dormouse_rows::process::Process;

use super::{Options, Turns};
use crate::certificates;
use crate::load::{self, FULL, Load};
use crate::process::{Kind, Server};
use crate::row::{Bound, Row};
use crate::sample::Sample;
use crate::work::{Get, LeaseTxn, List, Put, Work};

/// Worker threads of the server.
const THREADS: usize = 2;
/// Bytes of a value of puts and gets, and of a lease.
const VALUE_BYTES: usize = 1024;
const LEASE_BYTES: usize = 350;
/// Leases, and keys among which gets choose.
const LEASES: usize = 100_000;
const KEYS: u64 = 100_000;
/// Keys of a list, which is mostly encryption.
const LIMIT: u64 = 500;
/// Largest CPU time, of that in plain text.
const BOUND: Bound = Bound::RatioAtMost(1.15);

/// A turn, and the CPU time of this process, which sends the requests.
struct Turn {
    sample: Sample,
    client: Duration,
}

impl Turn {
    async fn measure<W: Work>(server: &Server, load: &Load<W>, time: Duration) -> Result<Self> {
        load.warm_up(time).await?;
        let this = Process(std::process::id());
        let before = this.cpu()?;
        let sample = load.run_cold(server, time).await?;
        Ok(Self {
            sample,
            client: this.cpu()?.saturating_sub(before),
        })
    }

    fn server_us(&self) -> f64 {
        self.sample.cpu_us()
    }

    fn both_us(&self) -> f64 {
        let client = self.client.as_secs_f64() * 1e6 / self.sample.ops.max(1) as f64;
        self.server_us() + client
    }
}

pub(super) async fn run(options: &Options) -> Result<()> {
    let put = || Put::among(KEYS, VALUE_BYTES);
    compare(options, "put 1 KiB", Some(BOUND), put).await?;
    let lease = || LeaseTxn::new(LEASES, LEASE_BYTES);
    compare(options, "lease transaction 350 B", Some(BOUND), lease).await?;
    let get = || Get { keys: KEYS };
    compare(options, "get 1 KiB", Some(BOUND), get).await?;
    let list = || List {
        keys: KEYS,
        limit: LIMIT,
    };
    compare(options, "range of 500 × 1 KiB", None, list).await
}

async fn compare<W: Work>(
    options: &Options,
    name: &str,
    bound: Option<Bound>,
    work: impl Fn() -> W,
) -> Result<()> {
    let folder = tempfile::tempdir().context("failed to create a folder for certificates")?;
    certificates::issue(folder.path())?;
    let kinds = [None, Some(folder.path().to_owned())].map(Kind::OfRoles);
    let mut servers = Vec::new();
    for kind in &kinds {
        let server = Server::start(kind, THREADS).await?;
        load::fill(&server, KEYS, VALUE_BYTES).await?;
        servers.push(server);
    }
    let turns = Turns::connect(servers, FULL, work).await?;
    let time = options.time();
    let turn = async |server: &Server, load: &Load<W>| Turn::measure(server, load, time).await;
    let measured = turns.measure(options, turn).await?;
    let [plain, tls] = &measured[..] else {
        return Ok(());
    };
    let bounded = |row: Row| match bound {
        Some(bound) => row.must(bound),
        None => row,
    };
    let row = |what: &str, unit, figure: fn(&Turn) -> f64| {
        let name = format!("{name} over TLS, and in plain text: {what}");
        Row::compared(name, unit, [&tls[..], plain], figure)
    };
    bounded(row("CPU of the server", "µs", Turn::server_us)).print()?;
    bounded(row("CPU of both sides", "µs", Turn::both_us)).print()?;
    row("rate", "/s", |turn| turn.sample.rate()).print()
}
