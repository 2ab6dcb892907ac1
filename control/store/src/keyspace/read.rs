//! Range reads: filters, sort order and limit, combined in etcd's order.

use std::{cmp::Ordering, sync::Arc};

use super::{History, KeyRange, Keyspace, Revision};
use crate::{
    Error,
    proto::{
        etcdserverpb::{
            RangeRequest,
            range_request::{SortOrder, SortTarget},
        },
        mvccpb::KeyValue,
    },
};

/// The result of a range read.
#[derive(Debug, Default)]
pub struct RangeResult {
    /// The key-value pairs, in the requested order.
    pub kvs: Vec<Arc<KeyValue>>,
    /// Whether the limit cut pairs off.
    pub more: bool,
    /// Keys in the range, without regard to limit and filters.
    pub count: i64,
}

/// The sort order and target of a request; an error where etcd's enumeration has no such value.
pub fn check_sort(request: &RangeRequest) -> Result<(SortOrder, SortTarget), Error> {
    let order = SortOrder::try_from(request.sort_order);
    let target = SortTarget::try_from(request.sort_target);
    match (order, target) {
        (Ok(order), Ok(target)) => Ok((order, target)),
        _ => Err(Error::InvalidSortOption),
    }
}

impl Keyspace {
    /// Serves a range request.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeResult, Error> {
        let (order, target) = check_sort(request)?;
        let revision = self.read_revision(request.revision)?;
        let range = KeyRange::new(&request.key, &request.range_end);
        let limit = usize::try_from(request.limit).unwrap_or(0);
        let filtered = has_filters(request);
        // Without a sort order, etcd applies the limit before it sorts.
        let kvs_max = match limit {
            _ if request.count_only => 0,
            0 => usize::MAX,
            _ if order != SortOrder::None || filtered => usize::MAX,
            _ => limit + 1,
        };
        let mut found = self.scan(&range, revision, kvs_max);
        if filtered {
            found.kvs.retain(|kv| passes(request, kv));
        }
        sort(&mut found.kvs, order, target);
        if limit > 0 && found.kvs.len() > limit {
            found.kvs.truncate(limit);
            found.more = true;
        }
        Ok(found)
    }

    /// Scans a range in key order: counts all keys, returns the first `kvs_max`.
    pub(crate) fn scan(
        &self,
        range: &KeyRange,
        revision: Option<Revision>,
        kvs_max: usize,
    ) -> RangeResult {
        let mut found = RangeResult::default();
        if range.is_empty() {
            return found;
        }
        let at = |history: &'_ History| match revision {
            None => history.latest().cloned(),
            Some(revision) => history.at(revision).cloned(),
        };
        for (_, history) in self.keys.range::<[u8], _>(range.bounds()) {
            let Some(kv) = at(history) else { continue };
            found.count += 1;
            if found.kvs.len() < kvs_max {
                found.kvs.push(kv);
            }
        }
        found
    }
}

fn has_filters(request: &RangeRequest) -> bool {
    request.min_mod_revision != 0
        || request.max_mod_revision != 0
        || request.min_create_revision != 0
        || request.max_create_revision != 0
}

fn passes(request: &RangeRequest, kv: &KeyValue) -> bool {
    let above = |min: Revision, value: Revision| min == 0 || value >= min;
    let below = |max: Revision, value: Revision| max == 0 || value <= max;
    above(request.min_mod_revision, kv.mod_revision)
        && below(request.max_mod_revision, kv.mod_revision)
        && above(request.min_create_revision, kv.create_revision)
        && below(request.max_create_revision, kv.create_revision)
}

/// Sorts pairs that are in key order. The sort is stable, ascending and descending.
fn sort(kvs: &mut [Arc<KeyValue>], order: SortOrder, target: SortTarget) {
    let compare = |a: &KeyValue, b: &KeyValue| -> Ordering {
        match target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(&b.value),
        }
    };
    match (order, target) {
        (SortOrder::None | SortOrder::Ascend, SortTarget::Key) => {}
        (SortOrder::Descend, _) => kvs.sort_by(|a, b| compare(b, a)),
        (SortOrder::None | SortOrder::Ascend, _) => kvs.sort_by(|a, b| compare(a, b)),
    }
}
