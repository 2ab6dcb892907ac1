//! The benchmark of revisions: rollouts under load and weights in the data plane of three nodes, then many rollouts on nodes of which
//! only the fleet stream exists.

use anyhow::Result;

use super::{Options, apps};
use crate::demo::claims::rollout;
use crate::demo::cluster::Cluster;
use crate::report::Report;

/// Groups of rows: in a cluster, and without one.
pub(super) const GROUPS: &[&str] = &["nodes", "apps"];
/// Connections over which weights must hold, and the largest error of a part, in percent of all.
const WEIGHTS: (u32, f64) = (100_000, 1.0);

pub(super) fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("rollout");
    if options.runs("nodes") {
        let mut cluster = Cluster::start("bench", 3, &options.binaries, &options.interrupt)?;
        let (connections, most) = WEIGHTS;
        let rows = rollout::revisions_change_under_load(&mut cluster)?.into_iter();
        for row in rows.chain(rollout::divide(&cluster, connections, most)?) {
            report.push(row);
        }
    }
    if options.runs("apps") {
        apps::measure(&["rollout".to_owned()], &mut report)?;
    }
    Ok(report)
}
