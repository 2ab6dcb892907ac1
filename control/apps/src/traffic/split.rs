//! The rows of a split: the targets of the manifest and the share that a gradual rollout has moved, one row for each target. Pure.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use dormouse_cluster::app::RolloutStatus;
use dormouse_cluster::revision::number_of;
use dormouse_cluster::{App, AppSpec, Object, TrafficStatus};

/// One target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) revision: u32,
    /// The app's own template, at the app's own VIP. All other rows are children.
    pub(super) is_latest: bool,
    pub(super) percent: u32,
    pub(super) tag: Option<String>,
}

impl Row {
    pub(super) fn status(&self, vip: Ipv6Addr) -> TrafficStatus {
        TrafficStatus {
            revision: self.revision,
            percent: self.percent,
            tag: self.tag.clone(),
            vip,
            latest: self.is_latest,
        }
    }
}

/// The rows that an app's manifest asks for, at this point of a gradual rollout. None: all traffic goes to its own pods.
pub(super) fn rows(app: &App, rollout: Option<&RolloutStatus>) -> Vec<Row> {
    let (name, number) = (app.key().name, app.revision_number());
    let mut rows = Vec::new();
    let mut add = |revision: u32, is_latest: bool, percent: u32, tag: Option<String>| {
        merge(
            &mut rows,
            Row {
                revision,
                is_latest,
                percent,
                tag,
            },
        );
    };
    if app.spec.traffic.is_empty() {
        latest(number, 100, rollout, &mut add);
    }
    for target in &app.spec.traffic {
        let named = target.revision_name.as_deref();
        if let Some(named) = named.and_then(|named| number_of(&name, named)) {
            add(named, false, target.percent, target.tag.clone());
            continue;
        }
        latest(number, target.percent, rollout, &mut add);
        // The app's own VIP is divided: only a child has an address of its own.
        if target.tag.is_some() {
            add(number, false, 0, target.tag.clone());
        }
    }
    let is_undivided = rows.iter().all(|row| row.is_latest);
    if is_undivided { Vec::new() } else { rows }
}

/// The share of the app's own template, and what a gradual rollout has left to the revision before.
fn latest(
    number: u32,
    percent: u32,
    rollout: Option<&RolloutStatus>,
    add: &mut impl FnMut(u32, bool, u32, Option<String>),
) {
    let moved = rollout.map_or(100, |rollout| rollout.percent.min(100));
    let own = (percent * moved).div_ceil(100);
    add(number, true, own, None);
    if let Some(rollout) = rollout {
        add(rollout.from, false, percent - own, None);
    }
}

/// Adds a row. Rows of one target are one with the sum of their percentages; a second tag is a row of its own.
fn merge(rows: &mut Vec<Row>, row: Row) {
    let same =
        |known: &&mut Row| (known.revision, known.is_latest) == (row.revision, row.is_latest);
    let Some(known) = rows.iter_mut().find(same) else {
        return rows.push(row);
    };
    known.percent += row.percent;
    match (&known.tag, row.tag) {
        (_, None) => {}
        (None, tag) => known.tag = tag,
        (Some(_), tag) => rows.push(Row {
            percent: 0,
            tag,
            ..row
        }),
    }
}

/// The share of the latest revision, percent.
pub(super) fn latest_share(spec: &AppSpec) -> u32 {
    if spec.traffic.is_empty() {
        return 100;
    }
    let latest = spec.traffic.iter().filter(|target| target.is_latest());
    latest.map(|target| target.percent).sum()
}

/// The numbers of the revisions that are children.
pub(super) fn numbers(rows: &[Row]) -> BTreeSet<u32> {
    let children = rows.iter().filter(|row| !row.is_latest);
    children.map(|row| row.revision).collect()
}

/// The split in force after a rollout has taken the share of the latest revision back, as that fails or is to be replaced by the one
/// before; none: this one does not, or there is nothing to take, or no target with traffic that gets it.
pub(super) fn taken_back(app: &App, rollout: Option<&RolloutStatus>) -> Option<Vec<TrafficStatus>> {
    let rollout = rollout?;
    if rollout.failure.is_none() && !rollout.is_return() {
        return None;
    }
    let mut split = app.status.as_ref()?.traffic.clone();
    let latest = split.iter_mut().find(|target| target.latest)?;
    latest.revision = rollout.revision;
    let percent = std::mem::take(&mut latest.percent);
    let gets = |target: &&mut TrafficStatus| {
        !target.latest && target.revision == rollout.from && target.percent > 0
    };
    split.iter_mut().find(gets)?.percent += percent;
    Some(split)
}

/// Whether a split sends traffic to a VIP.
pub(super) fn has_traffic(split: &[TrafficStatus], vip: Ipv6Addr) -> bool {
    let mut targets = split.iter();
    targets.any(|target| target.vip == vip && target.percent > 0)
}

/// Whether a child gets no traffic any more that had some, or has an address of its own no longer.
pub(super) fn takes_traffic(before: &[TrafficStatus], after: &[TrafficStatus]) -> bool {
    let mut had = before.iter().filter(|target| !target.latest);
    had.any(|target| {
        let is_named = after.iter().any(|other| other.vip == target.vip);
        !is_named || (target.percent > 0 && !has_traffic(after, target.vip))
    })
}
