//! The time for which a certificate is valid, and when it is renewed.

use std::time::{Duration, SystemTime};

use x509_cert::{Certificate, der::Decode};

/// Life of the certificates that the authority issues.
pub const LIFE: Duration = Duration::from_hours(24);
/// Longest time by which the clock of the other side may be behind when a certificate is issued.
const BACKDATE_MAX: Duration = Duration::from_mins(1);

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: SystemTime,
    /// The last second.
    pub not_after: SystemTime,
}

impl Validity {
    /// The validity of a certificate that is issued at `now` for `life`. It begins a little earlier, for clocks that are behind, but not
    /// before `floor`.
    pub fn issued(now: SystemTime, life: Duration, floor: Option<SystemTime>) -> Self {
        let begin = now - (life / 10).min(BACKDATE_MAX);
        Self {
            not_before: floor.map_or(begin, |floor| begin.max(floor)),
            not_after: now + life,
        }
    }

    /// The validity of a certificate in DER; none if it cannot be parsed.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?;
        let validity = certificate.tbs_certificate().validity();
        Some(Self {
            not_before: SystemTime::UNIX_EPOCH + validity.not_before.to_unix_duration(),
            not_after: SystemTime::UNIX_EPOCH + validity.not_after.to_unix_duration(),
        })
    }

    /// Whether a certificate can be used at `now`.
    pub fn contains(&self, now: SystemTime) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// When a certificate is renewed: at two thirds of its life.
    pub fn renew_at(&self) -> SystemTime {
        let life = self.not_after.duration_since(self.not_before);
        self.not_before + life.unwrap_or_default() * 2 / 3
    }

    /// The time from `now` until a certificate is renewed.
    pub fn renew_in(&self, now: SystemTime) -> Duration {
        self.renew_at().duration_since(now).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn after(seconds: u64) -> SystemTime {
        NOW + Duration::from_secs(1_000_000 + seconds)
    }

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_of_its_life() {
        let issued = Validity::issued(after(0), Duration::from_secs(10), None);
        assert_eq!(issued.not_before, after(0) - Duration::from_secs(1));
        assert_eq!(issued.not_after, after(10));
        assert!(issued.renew_at() > after(6) && issued.renew_at() < after(7));
        assert_eq!(issued.renew_in(after(9)), Duration::ZERO);
        let day = Validity::issued(after(0), LIFE, None);
        assert_eq!(day.not_before, after(0) - Duration::from_mins(1));
    }

    #[test]
    fn a_certificate_is_not_valid_before_its_floor() {
        let issued = Validity::issued(after(0), LIFE, Some(after(1)));
        assert!(!issued.contains(after(0)) && issued.contains(after(1)));
        assert!(!issued.contains(after(2) + LIFE));
    }
}
