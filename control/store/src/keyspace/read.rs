//! Reads of a range: filters, order, limit, as etcd combines them.

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

/// What a read found.
#[derive(Debug, Default)]
pub struct Selection {
    /// The keys, in the order that was asked for.
    pub kvs: Vec<Arc<KeyValue>>,
    /// Whether the limit left some out.
    pub more: bool,
    /// Keys in the range, whatever limit and filters say.
    pub count: i64,
}

/// Refuses orders and targets that do not exist.
pub fn check_sort(request: &RangeRequest) -> Result<(SortOrder, SortTarget), Error> {
    let order = SortOrder::try_from(request.sort_order);
    let target = SortTarget::try_from(request.sort_target);
    match (order, target) {
        (Ok(order), Ok(target)) => Ok((order, target)),
        _ => Err(Error::InvalidSortOption),
    }
}

impl Keyspace {
    /// Answers a range request.
    pub fn range(&self, request: &RangeRequest) -> Result<Selection, Error> {
        let (order, target) = check_sort(request)?;
        let revision = self.readable(request.revision)?;
        let range = KeyRange::new(&request.key, &request.range_end);
        let limit = usize::try_from(request.limit).unwrap_or(0);
        let filtered = has_filters(request);
        // etcd cuts before it sorts when no order was named.
        let taken = match limit {
            _ if request.count_only => 0,
            0 => usize::MAX,
            _ if order != SortOrder::None || filtered => usize::MAX,
            _ => limit + 1,
        };
        let mut found = self.select(&range, revision, taken);
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

    /// The keys of a range, in key order: all are counted, the first `taken` returned.
    pub(crate) fn select(
        &self,
        range: &KeyRange,
        revision: Option<Revision>,
        taken: usize,
    ) -> Selection {
        let mut found = Selection::default();
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
            if found.kvs.len() < taken {
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

/// Sorts keys that are in key order. The sort is stable in both directions.
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
