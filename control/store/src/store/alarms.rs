//! Alarm requests of the store, and the admission of requests by its quota.

use super::Store;
use crate::{
    Error,
    alarm::Alarm,
    durable::{kind, put_alarms},
    keyspace::Revision,
    proto::etcdserverpb::{AlarmType, alarm_request::AlarmAction},
};

impl Store {
    /// Lists, raises or disarms alarms; returns those that the action concerned.
    pub fn alarm(&self, action: AlarmAction, alarm: Alarm) -> (Vec<Alarm>, Revision) {
        let mut state = self.shared.state.write();
        let alarms = match action {
            AlarmAction::Get => state.alarms.of_kind(alarm.kind).collect(),
            AlarmAction::Activate => state.alarms.activate(alarm).into_iter().collect(),
            AlarmAction::Deactivate => state.alarms.deactivate(alarm).into_iter().collect(),
        };
        if let Some(journal) = &self.shared.journal
            && action != AlarmAction::Get
        {
            let revision = state.keyspace.current();
            journal.note((kind::ALARMS, revision), |out| {
                put_alarms(out, state.alarms.of_kind(AlarmType::None.into()));
            });
        }
        // Expired leases are not revoked while the alarm CORRUPT is active.
        self.shared.leases_changed.notify_one();
        (alarms, self.revision())
    }

    /// Refuses a request that may add `bytes` if they exceed the quota, and raises the alarm NOSPACE
    /// then. A request that adds nothing passes.
    pub(super) fn admit(&self, bytes: u64) -> Result<(), Error> {
        if bytes == 0 || self.bytes_in_use() + bytes < self.shared.limits.quota_bytes {
            return Ok(());
        }
        let own = Alarm {
            kind: AlarmType::Nospace.into(),
            member_id: self.shared.member_id,
        };
        self.alarm(AlarmAction::Activate, own);
        Err(Error::NoSpace)
    }
}
