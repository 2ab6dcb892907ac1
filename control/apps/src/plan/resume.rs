//! Apps after a start of control: what the store shows is taken over without a write.

use dormouse_cluster::Object;
use dormouse_fleet::Boottime;

use super::publish::{listing, status, written};
use crate::action::Action;
use crate::record::AppRecord;

/// Takes over an app at the start of control. An app with pods of its own continues as it is. For an app that its stored status
/// shows asleep, the entry is announced without another write.
pub(crate) fn resume(record: &mut AppRecord, now: Boottime) -> Option<Action> {
    let app = record.app.clone()?;
    let stored = app.status.clone().unwrap_or_default();
    if record.has_own_pods() {
        record.adopt(&stored, now);
        return None;
    }
    let status = status(record);
    let known = app.status.is_some()
        && (stored.state, stored.mode) == (status.state, status.mode)
        && (stored.ready, stored.wanted, stored.reason.is_none())
            == (status.ready, status.wanted, true);
    if !known || record.decider.is_some() {
        return None;
    }
    let (listing, version) = (listing(record), app.revision());
    let entry = listing.entry.clone();
    written(record, version, Some(listing));
    record.published.status = Some(status);
    Some(Action::Announce {
        vip: record.vip,
        version,
        entry,
    })
}
