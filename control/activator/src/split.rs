//! A traffic split: which target gets a request. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv6Addr;

use http::HeaderMap;
use http::header::COOKIE;

/// The targets of an app's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The targets. While weights move from one to the next, the requests of the others stay where they are.
    pub targets: Vec<SplitTarget>,
    /// What the requests have in common that get the same target; none: each is decided by itself.
    pub sticky: Option<Sticky>,
}

/// A target of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitTarget {
    /// VIP index.
    pub vip: u32,
    /// Its part of the requests, relative to the other targets; 0: none.
    pub weight: u32,
}

/// What requests have in common that get the same target. A request without it is decided by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sticky {
    /// The value of a header.
    Header(String),
    /// The value of a cookie.
    Cookie(String),
    /// The address of the client, which is a proxy's if there is one before the activator.
    ClientAddress,
}

impl Split {
    /// The target of a request; none: no target has a weight. `turn` is the number of the request: any sequence of turns is spread
    /// evenly.
    pub(crate) fn target(&self, headers: &HeaderMap, client: Ipv6Addr, turn: u32) -> Option<u32> {
        let sticky = self.sticky.as_ref();
        let draw = sticky.and_then(|sticky| sticky.draw(headers, client));
        self.at(draw.unwrap_or_else(|| spread(turn)))
    }

    /// The target at a point of the whole range of draws.
    fn at(&self, draw: u32) -> Option<u32> {
        let weights = self.targets.iter().map(|target| u64::from(target.weight));
        let mut place = (u64::from(draw) * weights.sum::<u64>()) >> 32;
        let mut targets = self.targets.iter();
        let found = targets.find(|target| {
            let weight = u64::from(target.weight);
            let is_here = place < weight;
            place = place.saturating_sub(weight);
            is_here
        });
        found.map(|target| target.vip)
    }
}

impl Sticky {
    fn draw(&self, headers: &HeaderMap, client: Ipv6Addr) -> Option<u32> {
        match self {
            Self::Header(name) => headers.get(name).map(|value| hash(value.as_bytes())),
            Self::Cookie(name) => cookie(headers, name).map(hash),
            Self::ClientAddress => Some(hash(&client.octets())),
        }
    }
}

/// The value of a cookie.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let fields = headers.get_all(COOKIE).into_iter();
    let pairs = fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        pair.trim_ascii()
            .strip_prefix(name.as_bytes())?
            .strip_prefix(b"=")
    });
    values.next()
}

/// The same in each activator of one version.
fn hash(value: &[u8]) -> u32 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let [a, b, c, d, ..] = hasher.finish().to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Multiples of the golden ratio: however few turns in a row are spread almost evenly.
const fn spread(turn: u32) -> u32 {
    turn.wrapping_mul(0x9e37_79b9)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const CLIENT: Ipv6Addr = Ipv6Addr::LOCALHOST;

    fn split(weights: &[u32], sticky: Option<Sticky>) -> Split {
        let targets = weights.iter().zip(1..);
        Split {
            targets: targets
                .map(|(weight, vip)| SplitTarget {
                    vip,
                    weight: *weight,
                })
                .collect(),
            sticky,
        }
    }

    fn with_cookie(cookies: &str) -> HeaderMap {
        let value = HeaderValue::from_str(cookies).unwrap();
        [(COOKIE, value)].into_iter().collect()
    }

    #[test]
    fn a_thousand_requests_hold_the_weights_within_three() {
        let split = split(&[90, 0, 9, 1], None);
        let mut got: BTreeMap<u32, i32> = BTreeMap::new();
        for turn in 0..1_000 {
            let target = split.target(&HeaderMap::new(), CLIENT, turn);
            *got.entry(target.unwrap()).or_default() += 1;
        }
        let off = [(1, 900), (3, 90), (4, 10)].map(|(vip, want)| (got[&vip] - want).abs());
        assert!(off.iter().all(|off| *off <= 3), "{got:?}");
        assert!(!got.contains_key(&2));
    }

    #[test]
    fn requests_with_the_same_cookie_get_the_same_target() {
        let split = split(&[50, 50], Some(Sticky::Cookie("user".into())));
        let target = |cookies: &str, turn| split.target(&with_cookie(cookies), CLIENT, turn);
        let mut seen = BTreeMap::new();
        for user in 0..100 {
            let first = target(&format!("a=1; user={user}"), user);
            let again = target(&format!("user={user};superuser=2"), user + 1);
            assert_eq!(first, again);
            *seen.entry(first).or_insert(0) += 1;
        }
        assert!(
            seen.values().all(|users| (30..70).contains(users)),
            "{seen:?}"
        );
        let others = (0..10).map(|turn| target("superuser=1", turn));
        assert!(others.collect::<std::collections::BTreeSet<_>>().len() > 1);
    }

    #[test]
    fn requests_of_one_address_or_with_one_header_get_the_same_target() {
        let by_address = split(&[1, 1], Some(Sticky::ClientAddress));
        let none = HeaderMap::new();
        let of = |turn| by_address.target(&none, CLIENT, turn);
        assert!((0..50).all(|turn| of(turn) == of(0)));
        let by_header = split(&[1, 1], Some(Sticky::Header("x-user".into())));
        let mut headers = HeaderMap::new();
        headers.insert("X-User", HeaderValue::from_static("7"));
        let of = |turn| by_header.target(&headers, CLIENT, turn);
        assert!((0..50).all(|turn| of(turn) == of(0)));
    }

    #[test]
    fn without_weights_there_is_no_target() {
        assert_eq!(
            split(&[0, 0], None).target(&HeaderMap::new(), CLIENT, 3),
            None
        );
        assert_eq!(split(&[], None).target(&HeaderMap::new(), CLIENT, 3), None);
    }

    proptest! {
        #[test]
        fn a_step_of_the_weights_moves_only_requests_to_the_one_that_grows(draw: u32, from in 0_u32..100) {
            let before = split(&[100 - from, from], None).at(draw);
            let after = split(&[99 - from, from + 1], None).at(draw);
            prop_assert!(before == after || (before, after) == (Some(1), Some(2)));
        }
    }
}
