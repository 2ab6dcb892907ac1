//! The conditions of a transaction.

use std::cmp::Ordering;

use crate::{
    keyspace::{KeyRange, Keyspace},
    proto::{
        etcdserverpb::{
            Compare,
            compare::{CompareResult, CompareTarget, TargetUnion},
        },
        mvccpb::KeyValue,
    },
};

/// Whether a condition holds now. Over a range all keys must agree; a range without keys counts as
/// one missing key.
pub(super) fn holds(keyspace: &Keyspace, compare: &Compare) -> bool {
    let range = KeyRange::new(&compare.key, &compare.range_end);
    let found = keyspace.select(&range, None, usize::MAX);
    if found.kvs.is_empty() {
        // Nothing can be said of the value of a missing key, not even that it differs.
        return target(compare) != Some(CompareTarget::Value)
            && agrees(compare, &KeyValue::default());
    }
    found.kvs.iter().all(|kv| agrees(compare, kv))
}

fn target(compare: &Compare) -> Option<CompareTarget> {
    CompareTarget::try_from(compare.target).ok()
}

/// A target without a value of its own is compared with 0 or the empty value.
fn agrees(compare: &Compare, kv: &KeyValue) -> bool {
    let wanted = compare.target_union.as_ref();
    let ordering = match (target(compare), wanted) {
        (Some(CompareTarget::Version), Some(TargetUnion::Version(v))) => kv.version.cmp(v),
        (Some(CompareTarget::Version), _) => kv.version.cmp(&0),
        (Some(CompareTarget::Create), Some(TargetUnion::CreateRevision(v))) => {
            kv.create_revision.cmp(v)
        }
        (Some(CompareTarget::Create), _) => kv.create_revision.cmp(&0),
        (Some(CompareTarget::Mod), Some(TargetUnion::ModRevision(v))) => kv.mod_revision.cmp(v),
        (Some(CompareTarget::Mod), _) => kv.mod_revision.cmp(&0),
        (Some(CompareTarget::Value), Some(TargetUnion::Value(v))) => kv.value.cmp(v),
        (Some(CompareTarget::Value), _) => kv.value.as_ref().cmp(&[]),
        (Some(CompareTarget::Lease), Some(TargetUnion::Lease(v))) => kv.lease.cmp(v),
        (Some(CompareTarget::Lease), _) => kv.lease.cmp(&0),
        (None, _) => Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering.is_eq(),
        Ok(CompareResult::NotEqual) => ordering.is_ne(),
        Ok(CompareResult::Greater) => ordering.is_gt(),
        Ok(CompareResult::Less) => ordering.is_lt(),
        // A result that does not exist holds, as in etcd.
        Err(_) => true,
    }
}
