//! The benchmark of TLS and certificates: requests to the store, agents that reconnect at once, idle streams, renewal under load. Its rows are groups of
//! the programs of other benchmarks. It needs neither root nor BPF.

use std::process::Command;

use anyhow::{Result, bail};

use super::{apps, store};
use crate::report::Report;

/// Groups of rows: the one of the store's program, and those of the program of the apps.
const OF_STORE: &str = "tls";
const OF_APPS: [&str; 3] = ["reconnect", "idle", "renewal"];
/// Descriptors for ten thousand agents in one process, and for the part of control's descriptors that is for them.
const DESCRIPTORS: u32 = 1 << 17;

/// Runs these groups, or all.
pub(super) fn run(groups: &[String]) -> Result<Report> {
    let known = |name: &String| name == OF_STORE || OF_APPS.contains(&name.as_str());
    if let Some(wrong) = groups.iter().find(|name| !known(name)) {
        bail!(
            "the benchmark `trust` has no group `{wrong}`; available: {OF_STORE}, {}",
            OF_APPS.join(", ")
        );
    }
    let runs = |name: &str| groups.is_empty() || groups.iter().any(|group| group == name);
    let mut report = Report::new("trust");
    if runs(OF_STORE) {
        store::measure(&[OF_STORE.to_owned()], &mut report)?;
    }
    let of_apps: Vec<_> = OF_APPS.into_iter().filter(|name| runs(name)).collect();
    if !of_apps.is_empty() {
        raise_descriptors();
        let of_apps: Vec<_> = of_apps.into_iter().map(str::to_owned).collect();
        apps::measure(&of_apps, &mut report)?;
    }
    Ok(report)
}

/// Raises the limit of this process, which the measured ones inherit. Only root may: otherwise fewer agents are measured, and the rows say so.
fn raise_descriptors() {
    let limit = format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}");
    let own = std::process::id().to_string();
    let _refused = Command::new("prlimit")
        .args(["--pid", &own, &limit])
        .output();
}
