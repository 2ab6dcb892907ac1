//! The start of pods for a share: in the mode in which the traffic is served now. Pure.

use dormouse_cluster::{AppStatus, Mode, TrafficStatus};

use super::needs::Target;
use super::{Family, is_asleep};

impl Family {
    /// Sets the floor in the status of a target. One that sleeps starts in the mode in which the traffic is served now, until its own load
    /// is known: its entry would else send all of the app's connections to an activator as soon as it has its share.
    pub(super) fn set_floor(&self, status: &mut AppStatus, floor: u32) {
        if floor > status.pods_min && is_asleep(status) {
            status.mode = self.mode();
        }
        status.pods_min = floor;
    }

    /// Serve mode, if all targets with traffic are in it.
    fn mode(&self) -> Mode {
        let traffic = self.traffic();
        let gets = traffic.iter().filter(|row| row.percent > 0);
        let own = Some(Target::Own).filter(|_| traffic.is_empty());
        let mut targets = gets.map(target_of).chain(own);
        let serves = |target| {
            self.status(target)
                .is_some_and(|one| one.mode == Mode::Serve)
        };
        if targets.all(serves) {
            Mode::Serve
        } else {
            Mode::Proxy
        }
    }
}

fn target_of(row: &TrafficStatus) -> Target {
    if row.latest {
        Target::Own
    } else {
        Target::Child(row.revision)
    }
}
