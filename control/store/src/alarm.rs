//! Alarms: conditions of the store that refuse requests until a client disarms them. Pure.

use std::{collections::BTreeSet, fmt};

use crate::{Error, proto::etcdserverpb::AlarmType};

/// An alarm of a member. Ordered by type, then by member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarm {
    /// A number of etcd's `AlarmType`. Clients may raise other numbers, which refuse nothing.
    pub kind: i32,
    /// The member that raised the alarm; 0 if a client raised it without one.
    pub member_id: u64,
}

/// The text format of etcd's `AlarmMember`, as in the errors of a status response.
impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.member_id != 0 {
            write!(f, "memberID:{} ", self.member_id)?;
        }
        match AlarmType::try_from(self.kind) {
            Ok(known) => write!(f, "alarm:{} ", known.as_str_name()),
            Err(_) => write!(f, "alarm:{} ", self.kind),
        }
    }
}

/// The active alarms.
#[derive(Debug, Default)]
pub struct Alarms {
    active: BTreeSet<Alarm>,
}

impl Alarms {
    /// These alarms.
    pub(crate) fn of(active: impl IntoIterator<Item = Alarm>) -> Self {
        Self {
            active: active.into_iter().collect(),
        }
    }

    /// Raises an alarm; returns it, whether it is new or not. The type NONE cannot be raised.
    pub fn activate(&mut self, alarm: Alarm) -> Option<Alarm> {
        if alarm.kind == kind(AlarmType::None) {
            return None;
        }
        self.active.insert(alarm);
        Some(alarm)
    }

    /// Disarms an alarm; returns it if it was active.
    pub fn deactivate(&mut self, alarm: Alarm) -> Option<Alarm> {
        self.active.remove(&alarm).then_some(alarm)
    }

    /// The active alarms of a type; of all types for NONE.
    pub fn of_kind(&self, wanted: i32) -> impl Iterator<Item = Alarm> {
        let all = wanted == kind(AlarmType::None);
        let active = self.active.iter().copied();
        active.filter(move |alarm| all || alarm.kind == wanted)
    }

    /// Whether the alarm CORRUPT is active: the store writes nothing.
    pub fn is_corrupt(&self) -> bool {
        self.is_raised(AlarmType::Corrupt)
    }

    /// Refuses a write if the alarm CORRUPT is active.
    pub fn check_write(&self) -> Result<(), Error> {
        if self.is_corrupt() {
            return Err(Error::Corrupt);
        }
        Ok(())
    }

    /// Refuses a write that makes the store grow if the alarm CORRUPT or NOSPACE is active.
    pub fn check_growth(&self) -> Result<(), Error> {
        self.check_write()?;
        if self.is_raised(AlarmType::Nospace) {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    fn is_raised(&self, wanted: AlarmType) -> bool {
        self.of_kind(kind(wanted)).next().is_some()
    }
}

fn kind(known: AlarmType) -> i32 {
    known.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(known: AlarmType, member_id: u64) -> Alarm {
        Alarm {
            kind: kind(known),
            member_id,
        }
    }

    #[test]
    fn an_alarm_is_disarmed_only_with_the_member_that_raised_it() {
        let mut alarms = Alarms::default();
        let raised = alarm(AlarmType::Nospace, 7);
        assert_eq!(alarms.activate(raised), Some(raised));
        assert_eq!(alarms.activate(raised), Some(raised));
        assert_eq!(alarms.deactivate(alarm(AlarmType::Nospace, 0)), None);
        assert_eq!(alarms.check_growth(), Err(Error::NoSpace));
        assert_eq!(alarms.deactivate(raised), Some(raised));
        assert_eq!(alarms.check_growth(), Ok(()));
        assert_eq!(alarms.deactivate(raised), None);
    }

    #[test]
    fn nospace_refuses_growth_and_corrupt_refuses_every_write() {
        let mut alarms = Alarms::default();
        alarms.activate(alarm(AlarmType::Nospace, 0));
        assert_eq!(alarms.check_write(), Ok(()));
        alarms.activate(alarm(AlarmType::Corrupt, 0));
        assert_eq!(alarms.check_write(), Err(Error::Corrupt));
        assert_eq!(alarms.check_growth(), Err(Error::Corrupt));
    }

    #[test]
    fn an_unknown_type_is_listed_and_refuses_nothing() {
        let mut alarms = Alarms::default();
        let unknown = Alarm {
            kind: 7,
            member_id: 0,
        };
        assert_eq!(alarms.activate(alarm(AlarmType::None, 0)), None);
        alarms.activate(unknown);
        assert_eq!(alarms.of_kind(0).collect::<Vec<_>>(), [unknown]);
        assert_eq!(alarms.of_kind(1).count(), 0);
        assert_eq!(alarms.check_growth(), Ok(()));
        assert_eq!(unknown.to_string(), "alarm:7 ");
        let own = alarm(AlarmType::Nospace, 3);
        assert_eq!(own.to_string(), "memberID:3 alarm:NOSPACE ");
    }
}
