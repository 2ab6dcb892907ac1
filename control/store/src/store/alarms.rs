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
    /// The active alarms of a type, all for NONE, and the visible revision.
    pub fn alarms(&self, kind: i32) -> (Vec<Alarm>, Revision) {
        let state = self.shared.state.read();
        (state.alarms.of_kind(kind).collect(), self.revision())
    }

    /// Lists, raises or disarms alarms; returns those that the action concerned, when a change is as
    /// durable as the default mode asks.
    pub async fn alarm(
        &self,
        action: AlarmAction,
        alarm: Alarm,
    ) -> Result<(Vec<Alarm>, Revision), Error> {
        if action == AlarmAction::Get {
            return Ok(self.alarms(alarm.kind));
        }
        self.check_journal()?;
        let (alarms, written) = {
            let mut state = self.shared.state.write();
            let alarms = &mut state.alarms;
            let changed = match action {
                AlarmAction::Deactivate => alarms.deactivate(alarm),
                AlarmAction::Get | AlarmAction::Activate => alarms.activate(alarm),
            };
            let written = self.record((kind::ALARMS, &state), |out| {
                put_alarms(out, state.alarms.of_kind(AlarmType::None.into()));
            });
            (changed.into_iter().collect(), written)
        };
        // Expired leases are not revoked while the alarm CORRUPT is active.
        self.shared.leases_changed.notify_one();
        self.settle(written).await?;
        Ok((alarms, self.revision()))
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
        let mut state = self.shared.state.write();
        state.alarms.activate(own);
        if let Some(journal) = &self.shared.journal {
            // No client waits for it, and the next put raises it again.
            journal.note((kind::ALARMS, state.keyspace.current()), |out| {
                put_alarms(out, state.alarms.of_kind(AlarmType::None.into()));
            });
        }
        Err(Error::NoSpace)
    }
}
