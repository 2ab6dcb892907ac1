//! The state that a store recovers from its snapshot and its journal.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use bytes::Bytes;
use dormouse_wal::{Durability, PreviousRun};

use super::{
    Lost, Policy, PrefixMode,
    record::{self, Pairs, Record, RecordError, Write},
};
use crate::{
    alarm::Alarms,
    auth,
    keyspace::{KeyRange, Keyspace, Revision},
    lease::{LeaseId, Leases},
    proto::etcdserverpb::Member,
};

/// Events that a slice of a compaction frees between two records.
const RECLAIM_EVENTS: usize = 65_536;

/// The recovered state. Leases start with their full TTL, as etcd's do after a change of the leader.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) keyspace: Keyspace,
    pub(crate) leases: Leases,
    pub(crate) alarms: Alarms,
    pub(crate) auth: auth::State,
    pub(crate) lost: Lost,
    /// Revisions of [`super::Journal`]'s `mixed`.
    pub(crate) mixed: BTreeSet<Revision>,
    pub(crate) members: Vec<Member>,
    /// The policy of the last run.
    policy: Policy,
    /// The revision of the snapshot; events up to it are in its keys.
    base: Revision,
}

impl Restored {
    /// The state before the first record; `snapshot` is the revision of the snapshot.
    pub(crate) fn new(snapshot: Option<Revision>, quota_bytes: u64) -> Self {
        let keyspace = match snapshot {
            Some(revision) => Keyspace::starting_at(revision, quota_bytes),
            None => Keyspace::new(quota_bytes),
        };
        Self {
            keyspace,
            auth: auth::State::default(),
            leases: Leases::default(),
            alarms: Alarms::default(),
            lost: Lost::default(),
            mixed: BTreeSet::new(),
            members: Vec::new(),
            policy: Policy::default(),
            base: snapshot.unwrap_or(0),
        }
    }

    /// Applies the next record.
    pub(crate) fn apply(
        &mut self,
        kind: u8,
        payload: &[u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match record::decode(kind, payload)? {
            Record::Write(write) => self.write(&write)?,
            Record::Delete { revision, range } => self.delete(revision, &range),
            Record::Grant { id, ttl_s } => self.grant(id, ttl_s),
            Record::Compact(revision) => self.compact(revision),
            Record::Alarms(alarms) => self.alarms = Alarms::of(alarms),
            Record::Auth { revision, changes } => {
                self.auth = auth::State::restored(revision, changes);
            }
            Record::Run { revision, policy } => {
                self.keyspace.restore_revision(revision);
                self.policy = parse_policy(policy)?;
            }
            Record::Lost { floor, prefixes } => self.lost.add(prefixes, floor),
            Record::Members(members) => self.members = members,
            Record::Hashes(hashes) => self.keyspace.restore_compactions(hashes),
            Record::Pairs(pairs) => self.pairs(pairs)?,
        }
        Ok(())
    }

    fn pairs(&mut self, pairs: Pairs<'_>) -> Result<(), RecordError> {
        for fields in pairs {
            let fields = fields?;
            self.keyspace.restore_key(&fields);
            self.leases.restore_key(fields.key, fields.lease);
            if self.policy.of(fields.key) == Durability::None {
                self.mixed.insert(fields.mod_revision);
            }
        }
        Ok(())
    }

    fn write(&mut self, write: &Write<'_>) -> Result<(), RecordError> {
        if write.revision > self.base {
            self.events(write)?;
        }
        if write.revoked != 0 {
            // A lease that is granted and revoked before the snapshot may not be there.
            let _ = self.leases.revoke(write.revoked);
        }
        Ok(())
    }

    fn events(&mut self, write: &Write<'_>) -> Result<(), RecordError> {
        let before = self.keyspace.current();
        let (mut none, mut others) = (false, false);
        for fields in write.events.clone() {
            let fields = fields?;
            self.keyspace.restore_event(&fields);
            let volatile = self.policy.of(fields.key) == Durability::None;
            none |= volatile;
            others |= !volatile;
        }
        self.keyspace.restore_revision(write.revision);
        if none && others {
            self.mixed.insert(write.revision);
        }
        self.leases.apply_above(before, &self.keyspace);
        Ok(())
    }

    fn delete(&mut self, revision: Revision, range: &KeyRange) {
        if revision > self.base {
            let before = self.keyspace.current();
            self.keyspace.restore_deletion(range, revision);
            self.leases.apply_above(before, &self.keyspace);
        }
    }

    fn grant(&mut self, id: LeaseId, ttl_s: i64) {
        // A grant from before the snapshot may be in it.
        let _ = self.leases.grant(id, ttl_s, Duration::ZERO);
    }

    fn compact(&mut self, revision: Revision) {
        let current = self.keyspace.current();
        // A compaction from before the snapshot is in it.
        if self.keyspace.compact(revision, current).is_ok() {
            while !self.keyspace.reclaim(None, RECLAIM_EVENTS) {}
        }
    }

    /// Ends the recovery: moves the revision beyond every one that was answered, and notes what the
    /// end of the last run may have lost.
    pub(crate) fn finish(&mut self, end: PreviousRun, mark_bound: u64) {
        if end == PreviousRun::None {
            return;
        }
        let answered = self.keyspace.current().max(mark_bound.cast_signed());
        let floor = answered + 1;
        self.keyspace.restore_revision(floor);
        self.lost.add(self.policy.lost_by(end), floor);
    }
}

/// The text of a record of a run: a line for each prefix, `PREFIX=MODE`, with hexadecimal prefixes;
/// the empty prefix is the default.
pub(crate) fn policy_text(policy: &Policy) -> String {
    let default = (Bytes::new(), policy.default);
    let modes = policy.prefixes.iter().chain([&default]);
    let mut text = String::new();
    for (prefix, mode) in modes {
        // Writing to a string does not fail.
        let _ = prefix
            .iter()
            .try_for_each(|byte| write!(text, "{byte:02x}"));
        let _ = writeln!(text, "={mode}");
    }
    text
}

fn parse_policy(text: &str) -> Result<Policy, Box<dyn std::error::Error + Send + Sync>> {
    let mut policy = Policy {
        default: Durability::Os,
        prefixes: Vec::new(),
    };
    for line in text.lines() {
        let PrefixMode(hex, mode) = line.parse()?;
        let digits = hex.chunks(2).map(|digits| {
            let digits = std::str::from_utf8(digits)?;
            Ok(u8::from_str_radix(digits, 16)?)
        });
        let prefix: Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> = digits.collect();
        policy.set((prefix?.into(), mode));
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_as_it_was_written() {
        let mut policy = Policy::default();
        policy.set((Bytes::from_static(b"a=\n\xff"), Durability::Fsync));
        policy.set((Bytes::new(), Durability::Buffered));
        assert_eq!(parse_policy(&policy_text(&policy)).unwrap(), policy);
        parse_policy("zz=os\n").unwrap_err();
    }

    #[test]
    fn a_restart_moves_the_revision_beyond_every_answered_one() {
        for (end, bound, expected) in [
            (PreviousRun::None, 0, 1),
            (PreviousRun::Closed, 7, 8),
            (PreviousRun::SameBoot, 1 << 20, (1 << 20) + 1),
        ] {
            let mut restored = Restored::new(None, u64::MAX);
            restored.finish(end, bound);
            assert_eq!(restored.keyspace.current(), expected, "{end:?}");
        }
    }
}
