//! The state that a store recovers from its snapshot and its journal.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use bytes::Bytes;
use dormouse_wal::{Durability, PreviousRun, Refused};

use super::{
    Lost, Policy, PrefixMode,
    record::{self, Pairs, Record, RecordError, Write},
};
use crate::{
    alarm::Alarms,
    auth,
    keyspace::{KeyRange, Keyspace, Recorded, Restoring, Revision},
    lease::{LeaseId, Leases},
    proto::etcdserverpb::Member,
    wire::Fields,
};

/// The recovered state. Leases start with their full TTL, as etcd's do after a change of the leader.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) keyspace: Restoring,
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
            keyspace: Restoring::new(keyspace),
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

    /// Applies the next records of the journal or of the snapshot.
    pub(crate) fn apply(&mut self, records: &[dormouse_wal::Record<'_>]) -> Result<(), Refused> {
        let mut writes = Writes::default();
        for (index, record) in records.iter().enumerate() {
            self.record((record.kind, record.payload), &mut writes)
                .map_err(|source| Refused { index, source })?;
        }
        self.writes(&mut writes);
        Ok(())
    }

    /// Applies a record, or adds it to the writes in front of it that are not applied yet.
    fn record<'a>(
        &mut self,
        (kind, payload): (u8, &'a [u8]),
        writes: &mut Writes<'a>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let record = record::decode(kind, payload)?;
        if let Record::Write(write) = record {
            return Ok(writes.add(write, &self.keyspace)?);
        }
        self.writes(writes);
        match record {
            Record::Write(_) => {}
            Record::Delete { revision, range } => self.delete(revision, &range),
            Record::Grant { id, ttl_s } => self.grant(id, ttl_s),
            Record::Compact(revision) => self.compact(revision),
            Record::Alarms(alarms) => self.alarms = Alarms::of(alarms),
            Record::Auth { revision, changes } => {
                self.auth = auth::State::restored(revision, changes);
            }
            Record::Run { revision, policy } => {
                self.keyspace.revision(revision);
                self.policy = parse_policy(policy)?;
            }
            Record::Lost { floor, prefixes } => self.lost.add(prefixes, floor),
            Record::Members(members) => self.members = members,
            Record::Hashes(hashes) => self.keyspace.compactions(hashes),
            Record::Pairs(pairs) => self.pairs(pairs)?,
        }
        Ok(())
    }

    fn pairs(&mut self, pairs: Pairs<'_>) -> Result<(), RecordError> {
        let keys = pairs.map(|fields| Ok(self.keyspace.recorded(fields?)));
        let mut keys = keys.collect::<Result<Vec<_>, RecordError>>()?;
        self.keyspace.find(&mut keys);
        for key in &keys {
            self.keyspace.key(key);
            let Fields {
                key,
                lease,
                mod_revision,
                ..
            } = key.fields;
            self.leases.restore_key(key, lease);
            if self.policy.of(key) == Durability::None {
                self.mixed.insert(mod_revision);
            }
        }
        Ok(())
    }

    /// Applies writes, after which there are none left.
    fn writes(&mut self, Writes { ends, events }: &mut Writes<'_>) {
        self.keyspace.find(events);
        let mut start = 0;
        for (write, end) in ends.drain(..) {
            self.write(&write, &events[start..end]);
            start = end;
        }
        events.clear();
    }

    fn write(&mut self, write: &Write<'_>, events: &[Recorded<'_>]) {
        if write.revision > self.base {
            self.events(write.revision, events);
        }
        if write.revoked != 0 {
            // A lease that is granted and revoked before the snapshot may not be there.
            let _ = self.leases.revoke(write.revoked);
        }
    }

    fn events(&mut self, revision: Revision, events: &[Recorded<'_>]) {
        let before = self.keyspace.current();
        let (mut none, mut others) = (false, false);
        for event in events {
            self.keyspace.event(event);
            let volatile = self.policy.of(event.fields.key) == Durability::None;
            none |= volatile;
            others |= !volatile;
        }
        self.keyspace.revision(revision);
        if none && others {
            self.mixed.insert(revision);
        }
        self.leases.apply_above(before, self.keyspace.keyspace());
    }

    fn delete(&mut self, revision: Revision, range: &KeyRange) {
        if revision > self.base {
            let before = self.keyspace.current();
            self.keyspace.deletion(range, revision);
            self.leases.apply_above(before, self.keyspace.keyspace());
        }
    }

    fn grant(&mut self, id: LeaseId, ttl_s: i64) {
        // A grant from before the snapshot may be in it.
        let _ = self.leases.grant(id, ttl_s, Duration::ZERO);
    }

    fn compact(&mut self, revision: Revision) {
        // A compaction from before the snapshot is in it.
        let _ = self.keyspace.compact(revision);
    }

    /// Ends the recovery: moves the revision beyond every one that was answered, and notes what the
    /// end of the last run may have lost.
    pub(crate) fn finish(&mut self, end: PreviousRun, mark_bound: u64) {
        if end == PreviousRun::None {
            return;
        }
        let answered = self.keyspace.current().max(mark_bound.cast_signed());
        let floor = answered + 1;
        self.keyspace.revision(floor);
        self.lost.add(self.policy.lost_by(end), floor);
    }
}

/// Writes that are not applied yet.
#[derive(Default)]
struct Writes<'a> {
    /// Each with the number of all events up to its last.
    ends: Vec<(Write<'a>, usize)>,
    events: Vec<Recorded<'a>>,
}

impl<'a> Writes<'a> {
    fn add(&mut self, write: Write<'a>, keyspace: &Restoring) -> Result<(), RecordError> {
        for fields in write.events.clone() {
            self.events.push(keyspace.recorded(fields?));
        }
        self.ends.push((write, self.events.len()));
        Ok(())
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
