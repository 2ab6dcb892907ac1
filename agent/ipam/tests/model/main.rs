//! A million random operations with crashes and reboots, against a simple model: after each one the leases equal the
//! model's, and no address is leased twice or within its quarantine.

#![expect(clippy::unwrap_used, reason = "a test ends at its first fault")]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_agent_ipam::journal::scan;
use dormouse_agent_ipam::{
    AllocateError, BootId, Ipv4Range, Ipv4Wish, Lease, LeaseKey, Leases, LeasesError, NetnsId,
    NodePrefix, Opening, Request, Secret, State, Suffix,
};

use ledger::Ledger;

mod judge;
mod ledger;

const OPERATIONS: u32 = 500_000;
const COHORTS: [u32; 2] = [5000, (1 << 20) - 1];

/// SplitMix64 (Steele and others, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((word ^ word >> 31) % u64::from(limit)).unwrap()
    }
}

struct World {
    random: Random,
    path: PathBuf,
    opening: Opening,
    leases: Option<Leases>,
    ledger: Ledger,
    now: Duration,
    containers: u32,
    refused: BTreeMap<&'static str, u32>,
}

fn key(container: u32) -> LeaseKey {
    LeaseKey {
        network: "pods".into(),
        container: container.to_string(),
        ifname: "eth0".into(),
    }
}

impl World {
    fn new(folder: &Path, opening: Opening, containers: u32) -> Self {
        let path = folder.join("leases");
        Self {
            random: Random(u64::from(containers)),
            leases: Some(Leases::open(&path, opening).unwrap()),
            path,
            ledger: Ledger::new(!opening.prefix.has_cohorts()),
            opening,
            now: Duration::ZERO,
            containers,
            refused: BTreeMap::new(),
        }
    }

    fn leases(&self) -> &Leases {
        self.leases.as_ref().unwrap()
    }

    fn operate(&mut self) {
        let container = self.random.below(self.containers);
        let held = self.ledger.held.get(&container).map(|lease| lease.suffix);
        match (self.random.below(100_000), held) {
            (0, _) => self.reboot(),
            (1..=40, _) => self.crash(),
            (41..=600, _) => self.adopt(container),
            (601..=1000, _) => self.check_room(),
            (1001..=30_000, _) => self.pass(),
            (30_001..=35_000, Some(suffix)) => {
                self.leases().confirm(suffix).unwrap();
                self.ledger.step(container, State::Live);
            }
            (35_001..=40_000, Some(suffix)) => {
                self.leases().release(suffix).unwrap();
                self.ledger.step(container, State::Releasing);
            }
            (40_001..=75_000, Some(suffix)) => {
                self.leases().free(suffix, self.now).unwrap();
                self.ledger.free(container, self.now);
            }
            _ => self.reserve(container),
        }
        let lease = self.leases().lease(&key(container));
        assert_eq!(lease.as_deref(), self.ledger.held.get(&container));
    }

    fn pass(&mut self) {
        self.now += Duration::from_millis(self.random.below(50).into());
        if let Some(begin) = self.now.checked_sub(self.opening.quarantine) {
            self.ledger.pass(begin);
        }
    }

    /// Reopens the journal with a torn record at its end.
    fn crash(&mut self) {
        self.leases = None;
        let bytes = fs::read(&self.path).unwrap();
        let (_, whole) = scan(&bytes).unwrap();
        let torn = usize::try_from(self.random.below(60)).unwrap();
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        let end = u64::try_from(whole).unwrap();
        file.write_all_at(&bytes[..torn.min(whole)], end).unwrap();
        self.open();
    }

    fn reboot(&mut self) {
        self.leases = None;
        self.now = Duration::ZERO;
        self.ledger.reboot();
        self.opening.boot.0[0] = self.opening.boot.0[0].wrapping_add(1);
        self.open();
    }

    fn open(&mut self) {
        let leases = Leases::open(&self.path, self.opening).unwrap();
        assert_eq!(leases.leases().len(), self.ledger.held.len());
        for (container, lease) in &self.ledger.held {
            assert_eq!(leases.lease(&key(*container)).as_deref(), Some(lease));
        }
        self.leases = Some(leases);
    }

    fn check_room(&mut self) {
        let room4 = self.opening.range4.is_none_or(|_| !self.is_exhausted4());
        let room = room4 && !self.is_exhausted(None);
        assert_eq!(self.leases().check_room(self.now).is_ok(), room);
    }

    /// The model's range has 61 addresses for pods: a /26 without its ends and gateway.
    pub(crate) fn is_full4(&self) -> bool {
        self.ledger.in_use4() >= 61
    }

    fn adopt(&mut self, container: u32) {
        let suffix = Suffix(0x1_0000 + self.random.below(1000));
        let suffix = Suffix(if self.ledger.narrow {
            16 + suffix.0 % 240
        } else {
            suffix.0
        });
        let lease = Lease {
            key: key(container),
            suffix,
            state: State::Live,
            netns: NetnsId::default(),
            since: Duration::ZERO,
            ipv4: None,
            wired: true,
        };
        let is_held = self.ledger.held.contains_key(&container);
        let adopted = self.leases().adopt(&lease);
        assert_eq!(
            adopted.is_ok(),
            !is_held && !self.ledger.suffixes.contains(&suffix.0)
        );
        if adopted.is_ok() {
            self.ledger.hold(container, &lease);
        }
    }

    fn request(&mut self, container: u32) -> Request {
        let cohort = match self.random.below(5) {
            0 => None,
            1..=3 => Some(COHORTS[0]),
            _ => Some(COHORTS[1]),
        };
        let cohort = cohort.filter(|_| !self.ledger.narrow);
        let suffix = match self.random.below(40) {
            0 => Some(self.random.below(300)),
            1 => Some(COHORTS[0] << 10 | self.random.below(1024)),
            2 => Some((COHORTS[0] + (1 << 20)) << 10 | self.random.below(1024)),
            _ => None,
        };
        let suffix = suffix.map(|s| if self.ledger.narrow { s % 256 } else { s });
        let ipv4 = match self.random.below(20) {
            0 => Ipv4Wish::Exactly(Ipv4Addr::new(
                10,
                0,
                0,
                u8::try_from(self.random.below(70)).unwrap(),
            )),
            1..=3 => Ipv4Wish::Any,
            _ => Ipv4Wish::None,
        };
        Request {
            address: suffix.map(|s| self.opening.prefix.address(Suffix(s))),
            cohort,
            ipv4: if self.opening.range4.is_some() {
                ipv4
            } else {
                Ipv4Wish::None
            },
            wired: self.random.below(10) != 0,
            ..Request::new(key(container), NetnsId { dev: 4, ino: 7 })
        }
    }

    fn reserve(&mut self, container: u32) {
        let request = self.request(container);
        // Whether it takes its own addresses back depends on what a restart has kept of former leases.
        if self.ledger.was_of(container, &request) {
            return;
        }
        match self.leases().reserve(&request, self.now) {
            Ok(lease) => {
                assert_eq!(self.refusal(container, &request), None, "{lease:?}");
                self.check_choice(&request, &lease);
                self.ledger.hold(container, &lease);
            }
            Err(LeasesError::Allocate(error)) => {
                *self.refused.entry(name(&error)).or_default() += 1;
                let expected = self.refusal(container, &request);
                assert_eq!(Some(name(&error)), expected, "{error}: {request:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn name(error: &AllocateError) -> &'static str {
    match error {
        AllocateError::Held { .. } => "held",
        AllocateError::Taken { .. } => "taken",
        AllocateError::Quarantined { .. } => "quarantined",
        AllocateError::OutOfRange { .. }
        | AllocateError::OutOfIpv4Range { .. }
        | AllocateError::OtherCohort { .. } => "range",
        AllocateError::Exhausted { .. } | AllocateError::Ipv4Exhausted { .. } => "exhausted",
        AllocateError::CohortExhausted { .. } => "cohort exhausted",
        _ => "another",
    }
}

/// A folder in memory where possible: a million syncs to a disk would take hours.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn simulate(opening: Opening, containers: u32, reasons: &[&str]) {
    let folder = folder();
    let mut world = World::new(folder.path(), opening, containers);
    (0..OPERATIONS).for_each(|_| world.operate());
    world.crash();
    for reason in reasons {
        let times = world.refused.get(reason).copied().unwrap_or(0);
        assert!(times > 100, "{reason}: {:?}", world.refused);
    }
}

fn opening(prefix: &str, quarantine: Duration) -> Opening {
    let prefix: NodePrefix = prefix.parse().unwrap();
    Opening {
        quarantine,
        ..Opening::new(prefix, BootId([7; 16]))
    }
}

#[test]
fn a_wide_prefix_with_cohorts_ipv4_and_a_secret_order_equals_the_model() {
    let range4: Ipv4Range = "10.0.0.0/26".parse().unwrap();
    let opening = Opening {
        range4: Some(range4),
        secret: Some(Secret([9; 16])),
        ..opening("2001:db8::/96", Duration::from_mins(3))
    };
    let reasons = [
        "held",
        "taken",
        "quarantined",
        "range",
        "exhausted",
        "cohort exhausted",
    ];
    simulate(opening, 12_000, &reasons);
}

#[test]
fn the_narrowest_prefix_equals_the_model() {
    simulate(
        opening("2001:db8::/120", Duration::from_secs(1)),
        390,
        &["held", "taken", "quarantined", "range", "exhausted"],
    );
}
