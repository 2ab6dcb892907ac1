//! The hash of frontends outside of direct ranges, and the Bloom filter that saves most packets the lookup.

use std::net::IpAddr;

use dormouse_agent_services::{Protocol, Vip};
use dormouse_ebpf::maps::{
    FRONTEND_FILTER_WORDS, FRONTEND_LOCAL_BACKEND, FRONTENDS_MAX, FrontendKey, frontend_filter_bit,
};

use crate::arrays::{Arrays, octets};
use crate::error::DatapathError;
use crate::write_through::{KernelMap, WriteThrough};

/// Number of removed addresses after which the filter is rebuilt, if fewer remain.
const GONE_MAX: usize = 1_024;

/// The map and its Bloom filter.
#[derive(Debug)]
pub(super) struct Frontends {
    map: WriteThrough<FrontendKey, u32>,
    /// Entries removed since the filter was built.
    gone: usize,
}

impl Frontends {
    /// Reads what the previous agent left.
    pub(super) fn open(map: Box<dyn KernelMap<FrontendKey, u32>>) -> Result<Self, DatapathError> {
        Ok(Self {
            map: WriteThrough::open("frontend", map, FRONTENDS_MAX)?,
            gone: 0,
        })
    }

    pub(super) fn get(&self, key: &FrontendKey) -> Option<u32> {
        self.map.get(key)
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The keys of one kind.
    pub(super) fn keys(&self, kind: u8) -> Vec<FrontendKey> {
        let keys = self.map.iter().map(|(key, _)| *key);
        keys.filter(|key| key.kind == kind).collect()
    }

    /// Writes an entry, or removes it.
    pub(super) fn set(
        &mut self,
        arrays: &Arrays,
        key: FrontendKey,
        value: Option<u32>,
    ) -> Result<(), DatapathError> {
        let Some(value) = value else {
            self.gone += usize::from(self.map.take(&key));
            return Ok(());
        };
        if is_filtered(&key) {
            let (word, bit) = frontend_filter_bit(&key.address);
            let old = arrays.frontend_filter.load(word as usize).unwrap_or(0);
            if old & bit == 0 {
                arrays.frontend_filter.store(word as usize, old | bit);
            }
        }
        self.map.put(key, value).map(drop)
    }

    /// Rebuilds the filter if many addresses were removed.
    pub(super) fn tidy(&mut self, arrays: &Arrays) {
        if self.gone > GONE_MAX && self.gone > self.map.len() {
            self.sweep(arrays);
        }
    }

    /// Clears the bits of removed addresses. Bits of present ones are set at any time.
    pub(super) fn sweep(&mut self, arrays: &Arrays) {
        if self.gone == 0 {
            return;
        }
        let mut words = vec![0; FRONTEND_FILTER_WORDS as usize];
        for (key, _) in self.map.iter().filter(|(key, _)| is_filtered(key)) {
            let (word, bit) = frontend_filter_bit(&key.address);
            words[word as usize] |= bit;
        }
        for (place, word) in words.into_iter().enumerate() {
            if arrays.frontend_filter.load(place) != Some(word) {
                arrays.frontend_filter.store(place, word);
            }
        }
        self.gone = 0;
    }
}

/// Local backends are looked up without the filter; most packets go to one, so their bits would only fill it.
fn is_filtered(key: &FrontendKey) -> bool {
    key.kind != FRONTEND_LOCAL_BACKEND
}

/// The address of a key; a mapped one as IPv4.
pub(super) fn address(octets: [u8; 16]) -> IpAddr {
    IpAddr::from(octets).to_canonical()
}

/// The IP protocol number of a protocol.
pub(super) fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => dormouse_ebpf::packet::TCP,
        Protocol::Udp => dormouse_ebpf::packet::UDP,
        Protocol::Sctp => dormouse_ebpf::packet::SCTP,
    }
}

/// The key of an address and port: a VIP, or a local backend.
pub(super) fn key(vip: &Vip, kind: u8) -> FrontendKey {
    FrontendKey {
        address: octets(vip.address),
        port: vip.port,
        protocol: number(vip.protocol),
        kind,
    }
}

/// The key of an address alone.
pub(super) fn address_key(address: IpAddr, kind: u8) -> FrontendKey {
    FrontendKey {
        address: octets(address),
        port: 0,
        protocol: 0,
        kind,
    }
}

/// The VIP of a key with a port.
pub(super) fn vip(key: &FrontendKey) -> Option<Vip> {
    let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let mut protocols = protocols.into_iter();
    Some(Vip {
        address: address(key.address),
        port: key.port,
        protocol: protocols.find(|protocol| number(*protocol) == key.protocol)?,
    })
}
