//! The durability policy: the mode of a write by the prefixes of its keys.

use std::{fmt, str::FromStr};

use bytes::Bytes;
use dormouse_wal::{Durability, PreviousRun};

use super::lost::overlaps;
use crate::keyspace::KeyRange;

/// The modes of keys. The longest prefix of a key that is listed decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The mode of keys without a listed prefix, and of lease grants, alarms and users.
    pub default: Durability,
    /// Prefixes with modes of their own.
    pub prefixes: Vec<(Bytes, Durability)>,
}

/// Kubernetes writes its leases and events often, and recreates them after a loss.
const VOLATILE: [&str; 2] = ["/registry/leases/", "/registry/events/"];
/// Dormouse's revoked nodes and tokens: a power loss must not admit again what was revoked, used up or deleted.
const WITHDRAWABLE: [&str; 3] = [
    "/registry/dormouse.dev/jointokens/",
    "/registry/dormouse.dev/revokednodes/",
    "/registry/dormouse.dev/usertokens/",
];

impl Default for Policy {
    fn default() -> Self {
        let of = |prefixes: &[&'static str], mode| {
            let prefixes = prefixes.iter().map(|prefix| prefix.as_bytes());
            let prefixes = prefixes.map(Bytes::from_static);
            prefixes.map(|prefix| (prefix, mode)).collect::<Vec<_>>()
        };
        Self {
            default: Durability::Os,
            prefixes: [
                of(&VOLATILE, Durability::None),
                of(&WITHDRAWABLE, Durability::Fsync),
            ]
            .concat(),
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

    /// The strictest mode that a key of a range may have.
    pub(super) fn of_range(&self, range: &KeyRange) -> Durability {
        let (around, others): (Vec<_>, Vec<_>) = self
            .prefixes
            .iter()
            .partition(|(prefix, _)| is_within(range, prefix));
        let longest = around.iter().max_by_key(|(prefix, _)| prefix.len());
        let outer = longest.map_or(self.default, |(_, mode)| *mode);
        let inner = others.iter().filter(|(prefix, _)| overlaps(range, prefix));
        inner.map(|(_, mode)| *mode).fold(outer, Durability::max)
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

/// Whether all keys of a range have the prefix.
fn is_within(range: &KeyRange, prefix: &[u8]) -> bool {
    match range {
        KeyRange::One(key) => key.starts_with(prefix),
        KeyRange::Span(start, end) => {
            start.starts_with(prefix) && (end.starts_with(prefix) || is_end_of(prefix, end))
        }
        KeyRange::From(_) => false,
    }
}

/// Whether a key is the first one behind all keys with the prefix.
fn is_end_of(prefix: &[u8], key: &[u8]) -> bool {
    let (Some((last, head)), Some((end, same))) = (prefix.split_last(), key.split_last()) else {
        return false;
    };
    head == same && last.checked_add(1) == Some(*end)
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
    use proptest::prelude::*;

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
            ("/registry/dormouse.dev/revokednodes/a", Durability::Fsync),
            ("other", Durability::None),
        ];
        for (key, mode) in modes {
            assert_eq!(policy.of(key.as_bytes()), mode, "{key}");
        }
    }

    fn bytes() -> impl Strategy<Value = Bytes> {
        let byte = prop_oneof![Just(0), Just(b'a'), Just(b'b'), Just(255)];
        prop::collection::vec(byte, 1..5).prop_map(Bytes::from)
    }

    fn mode() -> impl Strategy<Value = Durability> {
        prop_oneof![
            Just(Durability::None),
            Just(Durability::Os),
            Just(Durability::Fsync)
        ]
    }

    proptest! {
        #[test]
        fn no_key_of_a_range_has_a_stricter_mode_than_the_range(
            (default, prefixes) in (mode(), prop::collection::vec((bytes(), mode()), 0..6)),
            (start, end) in (bytes(), prop::option::of(bytes())),
            keys in prop::collection::vec(bytes(), 20),
        ) {
            let mut policy = Policy { default, prefixes: Vec::new() };
            for setting in prefixes {
                policy.set(setting);
            }
            let range = KeyRange::new(&start, &end.unwrap_or_default());
            for key in keys.iter().chain([&start]).filter(|key| range.contains(key)) {
                prop_assert!(policy.of(key) <= policy.of_range(&range));
            }
        }
    }

    #[test]
    fn a_range_inside_a_prefix_has_its_mode_and_a_wider_one_the_strictest() {
        let policy = Policy::default();
        let modes = [
            ("/registry/events/", "/registry/events0", Durability::None),
            ("/registry/events/a", "/registry/events/b", Durability::None),
            ("/registry/events/a", "", Durability::None),
            ("/registry/events/", "/registry/events1", Durability::Os),
            ("/registry/events/a", "\0", Durability::Os),
            ("/registry/d", "\0", Durability::Fsync),
            ("/registry/", "/registry0", Durability::Fsync),
            ("/registry/pods/", "/registry/pods0", Durability::Os),
        ];
        for (key, end, mode) in modes {
            let [key, end] = [key, end].map(|key| Bytes::from_static(key.as_bytes()));
            let range = KeyRange::new(&key, &end);
            assert_eq!(policy.of_range(&range), mode, "{range:?}");
        }
    }

    #[test]
    fn a_crash_loses_the_prefixes_whose_mode_does_not_survive_it() {
        let policy = Policy::default();
        let prefixes = policy.prefixes.iter();
        let volatile = prefixes.filter(|(_, mode)| *mode == Durability::None);
        let volatile = || volatile.clone().map(|(prefix, _)| prefix.clone());
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
