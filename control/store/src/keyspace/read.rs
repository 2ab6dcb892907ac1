//! Range reads in slices: filters, sort order and limit, combined in etcd's order.

use std::cmp::Ordering;

use bytes::Bytes;

use super::{KeyRange, Keyspace, Revision, View, count::Count};
use crate::{
    Error,
    proto::etcdserverpb::{
        RangeRequest,
        range_request::{SortOrder, SortTarget},
    },
    wire::{Fields, KeyValue, Pairs, PairsBuffer},
};

/// Versions and bytes after which a slice ends; both bound the time for which a reader holds the lock.
/// A read of the last revision reads one version of each key.
const SLICE_VERSIONS: usize = 512;
const SLICE_BYTES: usize = 256 << 10;

/// The result of a range read.
#[derive(Debug, Default)]
pub struct RangeResult {
    /// The key-value pairs, in the requested order.
    pub pairs: Pairs,
    /// Whether the limit cut pairs off.
    pub more: bool,
    /// Keys in the range, without regard to limit and filters.
    pub count: i64,
}

/// The sort order and target of a request; an error where etcd's enumeration has no such value.
pub(crate) fn check_sort(request: &RangeRequest) -> Result<(SortOrder, SortTarget), Error> {
    let order = SortOrder::try_from(request.sort_order);
    let target = SortTarget::try_from(request.sort_target);
    match (order, target) {
        (Ok(order), Ok(target)) => Ok((order, target)),
        _ => Err(Error::InvalidSortOption),
    }
}

/// A range read in progress. Its revision must stay readable until the last slice.
#[derive(Debug)]
pub struct RangeRead {
    range: KeyRange,
    revision: Revision,
    plan: Plan,
    /// The last key that was scanned.
    after: Option<Bytes>,
    /// Keys scanned so far.
    scanned: i64,
    scan_done: bool,
    /// `None`: the scan counts.
    count: Option<Count>,
    /// Pairs that were drained.
    drained: usize,
    /// Whether a pair was not taken, since there are enough.
    more: bool,
    pairs: PairsBuffer,
}

/// What a request wants of the pairs in its range.
#[derive(Debug)]
struct Plan {
    filters: Filters,
    order: SortOrder,
    target: SortTarget,
    keys_only: bool,
    count_only: bool,
    /// 0 is no limit.
    limit: usize,
    /// Pairs that the scan takes at most.
    pairs_max: usize,
}

impl Plan {
    fn new(request: &RangeRequest) -> Result<Self, Error> {
        let (order, target) = check_sort(request)?;
        let filters = Filters::new(request);
        let limit = usize::try_from(request.limit).unwrap_or(0);
        // Without a sort order, etcd reads one pair beyond the limit and then sorts.
        let unsorted = order == SortOrder::None && filters.is_empty();
        let pairs_max = match limit {
            _ if request.count_only => 0,
            0 => usize::MAX,
            _ if in_key_order(order, target) => limit,
            _ if unsorted => limit.saturating_add(1),
            _ => usize::MAX,
        };
        Ok(Self {
            filters,
            order,
            target,
            keys_only: request.keys_only,
            count_only: request.count_only,
            limit,
            pairs_max,
        })
    }

    /// The first pairs in the requested order, up to the limit.
    fn sorted(&self, pairs: &Pairs) -> Pairs {
        let mut messages: Vec<_> = pairs.messages().collect();
        sort(&mut messages, self.order, self.target);
        if self.limit > 0 {
            messages.truncate(self.limit);
        }
        let mut sorted = PairsBuffer::default();
        for message in &messages {
            sorted.push_message(message, self.keys_only);
        }
        sorted.take()
    }
}

impl RangeRead {
    /// A read of the view, or of the earlier revision that the request names.
    pub fn new(view: View<'_>, request: &RangeRequest) -> Result<Self, Error> {
        let plan = Plan::new(request)?;
        let revision = view.read_revision(request.revision)?;
        let range = KeyRange::new(&request.key, &request.range_end);
        let count = match plan.pairs_max {
            usize::MAX => None,
            _ => count(view.keyspace(), &range, revision),
        };
        Ok(Self {
            scan_done: range.is_empty() || (plan.count_only && count.is_some()),
            count,
            range,
            revision,
            plan,
            after: None,
            scanned: 0,
            drained: 0,
            more: false,
            pairs: PairsBuffer::default(),
        })
    }

    /// The revision that is read.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Reads some keys; returns whether the read is complete.
    pub fn slice(&mut self, keyspace: &Keyspace) -> bool {
        if !self.scan_done {
            self.scan(keyspace);
            return self.scan_done && self.count.is_none_or(|count| count.work().1 == 0);
        }
        let count = self.count.as_mut();
        count.is_none_or(|count| count.slice(keyspace, &self.range))
    }

    fn scan(&mut self, keyspace: &Keyspace) {
        let view = keyspace.at(self.revision);
        let (mut versions, mut bytes) = (0, 0);
        let mut last = None;
        for (key, cell) in view.cells(&self.range, self.after.as_deref()) {
            if versions >= SLICE_VERSIONS || bytes >= SLICE_BYTES {
                self.after = last.map(Bytes::copy_from_slice);
                return;
            }
            if self.count.is_some() && self.more {
                break;
            }
            last = Some(key);
            let (found, walked) = keyspace.records.walk(cell, self.revision);
            versions += walked;
            if let Some(version) = found {
                self.scanned += 1;
                bytes += self.take(key, version.encoded());
            }
        }
        self.scan_done = true;
    }

    /// Takes a pair that the request wants; returns its bytes.
    fn take(&mut self, key: &[u8], encoded: &[u8]) -> usize {
        if self.plan.count_only || self.more || !self.plan.filters.pass(encoded) {
            return 0;
        }
        if self.drained + self.pairs.len() >= self.plan.pairs_max {
            self.more = true;
            return 0;
        }
        // A sort by value needs the values.
        if self.plan.keys_only && self.plan.target != SortTarget::Value {
            self.pairs.push_key_only(key, encoded);
        } else {
            self.pairs.push(key, encoded);
        }
        key.len() + encoded.len()
    }

    /// Bytes of the pairs that were read and not drained.
    pub fn bytes(&self) -> u64 {
        self.pairs.bytes()
    }

    /// Takes the pairs that were read so far, in a read in key order; the result has the others.
    pub fn drain(&mut self) -> Pairs {
        self.drained += self.pairs.len();
        self.pairs.take()
    }

    /// The result, after the last slice.
    pub fn finish(mut self) -> RangeResult {
        let mut pairs = self.pairs.take();
        if !in_key_order(self.plan.order, self.plan.target) {
            self.more |= self.plan.limit > 0 && pairs.len() > self.plan.limit;
            pairs = self.plan.sorted(&pairs);
        }
        RangeResult {
            pairs,
            more: self.more,
            count: self.count.map_or(self.scanned, |count| count.keys()),
        }
    }
}

/// Whether pairs in key order need no sort.
fn in_key_order(order: SortOrder, target: SortTarget) -> bool {
    target == SortTarget::Key && order != SortOrder::Descend
}

/// The count by the events since the revision, where that costs less than a scan of the range.
fn count(keyspace: &Keyspace, range: &KeyRange, revision: Revision) -> Option<Count> {
    if matches!(range, KeyRange::One(_)) {
        return None;
    }
    let count = Count::new(keyspace, range, revision);
    let (keys, events) = count.work();
    (events <= keys).then_some(count)
}

/// Bounds of revisions; 0 is no bound.
#[derive(Debug)]
struct Filters {
    min_mod: Revision,
    max_mod: Revision,
    min_create: Revision,
    max_create: Revision,
}

impl Filters {
    fn new(request: &RangeRequest) -> Self {
        Self {
            min_mod: request.min_mod_revision,
            max_mod: request.max_mod_revision,
            min_create: request.min_create_revision,
            max_create: request.max_create_revision,
        }
    }

    fn is_empty(&self) -> bool {
        [self.min_mod, self.max_mod, self.min_create, self.max_create] == [0; 4]
    }

    fn pass(&self, encoded: &[u8]) -> bool {
        if self.is_empty() {
            return true;
        }
        let kv = Fields::decode(encoded);
        let above = |min: Revision, value: Revision| min == 0 || value >= min;
        let below = |max: Revision, value: Revision| max == 0 || value <= max;
        above(self.min_mod, kv.mod_revision)
            && below(self.max_mod, kv.mod_revision)
            && above(self.min_create, kv.create_revision)
            && below(self.max_create, kv.create_revision)
    }
}

/// Sorts pairs that are in key order. The sort is stable, ascending and descending.
fn sort(kvs: &mut [KeyValue], order: SortOrder, target: SortTarget) {
    let compare = |a: &KeyValue, b: &KeyValue| -> Ordering {
        let (a, b) = (a.fields(), b.fields());
        match target {
            SortTarget::Key => a.key.cmp(b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(b.value),
        }
    };
    match order {
        SortOrder::Descend => kvs.sort_by(|a, b| compare(b, a)),
        SortOrder::None | SortOrder::Ascend => kvs.sort_by(compare),
    }
}
