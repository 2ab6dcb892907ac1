//! The durability policy: the mode of a write by the prefixes of its keys.

use std::{fmt, str::FromStr};

use bytes::Bytes;
use dormouse_wal::{Durability, PreviousRun};

/// The modes of keys. The longest prefix of a key that is listed decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The mode of keys without a listed prefix, and of lease grants, alarms and users.
    pub default: Durability,
    /// Prefixes with modes of their own.
    pub prefixes: Vec<(Bytes, Durability)>,
}

impl Default for Policy {
    /// Kubernetes writes its leases and events often, and recreates them after a loss.
    fn default() -> Self {
        let volatile = ["/registry/leases/", "/registry/events/"];
        let prefixes =
            volatile.map(|prefix| (Bytes::from_static(prefix.as_bytes()), Durability::None));
        Self {
            default: Durability::Os,
            prefixes: prefixes.into(),
        }
    }
}

impl Policy {
    /// The mode of a key.
    pub fn of(&self, key: &[u8]) -> Durability {
        let listed = self.prefixes.iter();
        let matching = listed.filter(|(prefix, _)| key.starts_with(prefix));
        let longest = matching.max_by_key(|(prefix, _)| prefix.len());
        longest.map_or(self.default, |(_, mode)| *mode)
    }

    /// Sets the mode of a prefix; the empty prefix is the default's.
    pub fn set(&mut self, (prefix, mode): (Bytes, Durability)) {
        if prefix.is_empty() {
            self.default = mode;
            return;
        }
        self.prefixes.retain(|(listed, _)| *listed != prefix);
        self.prefixes.push((prefix, mode));
    }

    /// The prefixes of which the end of a run may have lost acknowledged writes.
    pub(super) fn lost_by(&self, end: PreviousRun) -> Vec<Bytes> {
        let surviving = match end {
            PreviousRun::None => return Vec::new(),
            PreviousRun::Closed => Durability::Buffered,
            PreviousRun::SameBoot => Durability::Os,
            PreviousRun::OtherBoot => Durability::Fsync,
        };
        let all = (Bytes::new(), self.default);
        let modes = self.prefixes.iter().chain([&all]);
        let lost = modes.filter(|(_, mode)| *mode < surviving);
        lost.map(|(prefix, _)| prefix.clone()).collect()
    }
}

/// A prefix and its mode on the command line: `PREFIX=MODE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixMode(pub Bytes, pub Durability);

/// A text that is no [`PrefixMode`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixModeError {
    /// There is no `=`.
    #[error("`{0}` has no `=`: write PREFIX=MODE, such as /registry/events/=none")]
    NoMode(String),
    /// The mode is unknown.
    #[error(transparent)]
    Mode(#[from] dormouse_wal::UnknownDurability),
}

impl FromStr for PrefixMode {
    type Err = PrefixModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((prefix, mode)) = text.rsplit_once('=') else {
            return Err(PrefixModeError::NoMode(text.to_owned()));
        };
        Ok(Self(
            Bytes::copy_from_slice(prefix.as_bytes()),
            mode.parse()?,
        ))
    }
}

impl fmt::Display for PrefixMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", String::from_utf8_lossy(&self.0), self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        let mut policy = Policy::default();
        for setting in [
            "/registry/=buffered",
            "/registry/events/kept/=fsync",
            "=none",
        ] {
            let PrefixMode(prefix, mode) = setting.parse().unwrap();
            policy.set((prefix, mode));
        }
        let modes = [
            ("/registry/pods/a", Durability::Buffered),
            ("/registry/leases/a", Durability::None),
            ("/registry/events/a", Durability::None),
            ("/registry/events/kept/a", Durability::Fsync),
            ("other", Durability::None),
        ];
        for (key, mode) in modes {
            assert_eq!(policy.of(key.as_bytes()), mode, "{key}");
        }
    }

    #[test]
    fn a_crash_loses_the_prefixes_whose_mode_does_not_survive_it() {
        let policy = Policy::default();
        let volatile = || policy.prefixes.iter().map(|(prefix, _)| prefix.clone());
        assert!(policy.lost_by(PreviousRun::None).is_empty());
        for end in [PreviousRun::Closed, PreviousRun::SameBoot] {
            assert!(policy.lost_by(end).into_iter().eq(volatile()), "{end:?}");
        }
        let all = volatile().chain([Bytes::new()]);
        assert!(policy.lost_by(PreviousRun::OtherBoot).into_iter().eq(all));
    }

    #[test]
    fn a_malformed_prefix_mode_is_refused_with_an_example() {
        let no_mode = "/a".parse::<PrefixMode>().unwrap_err();
        assert!(no_mode.to_string().contains("PREFIX=MODE"));
        let unknown = "/a=disk".parse::<PrefixMode>().unwrap_err();
        assert!(unknown.to_string().contains("use none"));
    }
}
