//! The compares of a transaction.

use std::cmp::Ordering;

use crate::{
    keyspace::{KeyRange, View},
    proto::etcdserverpb::{
        Compare,
        compare::{CompareResult, CompareTarget, TargetUnion},
    },
    wire::Fields,
};

/// Whether a compare succeeds. Over a range it must succeed for every key; a range without keys is
/// compared as one missing key.
pub(super) fn holds(view: View<'_>, compare: &Compare) -> bool {
    let range = KeyRange::new(&compare.key, &compare.range_end);
    let mut found = view.scan(&range).peekable();
    if found.peek().is_none() {
        // A compare of the value of a missing key fails, even with NOT_EQUAL.
        return target(compare) != Some(CompareTarget::Value)
            && holds_for(compare, &Fields::default());
    }
    found.all(|found| holds_for(compare, &found.fields()))
}

fn target(compare: &Compare) -> Option<CompareTarget> {
    CompareTarget::try_from(compare.target).ok()
}

/// Without a target value the field is compared with 0 or with the empty value.
fn holds_for(compare: &Compare, kv: &Fields<'_>) -> bool {
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
        (Some(CompareTarget::Value), Some(TargetUnion::Value(v))) => kv.value.cmp(v.as_ref()),
        (Some(CompareTarget::Value), _) => kv.value.cmp(&[]),
        (Some(CompareTarget::Lease), Some(TargetUnion::Lease(v))) => kv.lease.cmp(v),
        (Some(CompareTarget::Lease), _) => kv.lease.cmp(&0),
        (None, _) => Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering.is_eq(),
        Ok(CompareResult::NotEqual) => ordering.is_ne(),
        Ok(CompareResult::Greater) => ordering.is_gt(),
        Ok(CompareResult::Less) => ordering.is_lt(),
        // As in etcd, a compare with an unknown result succeeds.
        Err(_) => true,
    }
}
