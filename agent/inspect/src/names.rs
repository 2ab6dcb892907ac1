//! Names of slots and frontends: Services' names from the agent, or addresses if no agent answers.

use std::collections::HashMap;
use std::net::SocketAddr;

use dormouse_agent_datapath::{FrontendAddress, Pinned, octets, protocol_name, protocol_number};
use dormouse_ebpf::decide::Tables as _;
use dormouse_ebpf::maps::{FRONTEND_SOURCE_RANGES, FRONTEND_VIP, FrontendKey, NO_SLOT};
use dormouse_ebpf::packet::{SCTP, TCP, UDP};

use super::InspectError;
use super::services::{self, ServiceQuery, ServiceRow};

/// Names by frontend and by slot.
#[derive(Debug, Default)]
pub struct Names {
    services: HashMap<FrontendAddress, (String, String)>,
    slots: HashMap<u32, FrontendAddress>,
    /// The error of reading names from the agent; addresses are shown instead of names.
    pub failure: Option<InspectError>,
}

/// The maps of a node, and the names for what is in them.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The pinned maps.
    pub pinned: &'a Pinned,
    /// The names.
    pub names: &'a Names,
}

impl Names {
    /// Reads the names from the agent. If it does not answer, only the names are missing.
    pub fn read(agent: SocketAddr, pinned: &Pinned) -> Result<Self, InspectError> {
        let mut names = match services::read(agent, &ServiceQuery::default()) {
            Ok(rows) => Self::of(&rows),
            Err(failure) => Self {
                failure: Some(failure),
                ..Self::default()
            },
        };
        names.slots = pinned.frontends()?;
        Ok(names)
    }

    /// The names in rows of service ports.
    pub fn of(rows: &[ServiceRow]) -> Self {
        let mut services = HashMap::new();
        for row in rows {
            for vip in &row.vips {
                let frontend = FrontendAddress {
                    address: vip.address,
                    port: vip.port,
                    protocol: service_protocol(&row.protocol).unwrap_or(0),
                };
                services.insert(frontend, (row.title(), vip.kind.clone()));
            }
        }
        Self {
            services,
            ..Self::default()
        }
    }

    /// The Service port with this frontend, as `namespace/name:port`.
    pub fn at(&self, frontend: &FrontendAddress) -> Option<&str> {
        self.services.get(frontend).map(|(title, _)| title.as_str())
    }

    /// The kind of a frontend: `clusterIP`, `external`, `loadBalancer`, `nodePort`.
    pub fn kind_at(&self, frontend: &FrontendAddress) -> Option<&str> {
        self.services.get(frontend).map(|(_, kind)| kind.as_str())
    }

    /// The owner of a slot: a Service port's name, else its frontend, else the slot's number. None for `NO_SLOT`.
    pub fn of_slot(&self, pinned: &Pinned, slot: u32) -> Option<String> {
        if slot == NO_SLOT {
            return None;
        }
        let frontend = pinned
            .own_frontend(slot)
            .or_else(|| self.slots.get(&slot).copied());
        let Some(frontend) = frontend else {
            return Some(format!("slot {slot}"));
        };
        let (route, _) = pinned.slot(slot);
        if !route.is_service() {
            return Some(format!("app {}", frontend.address));
        }
        let named = self.at(&frontend).map(ToOwned::to_owned);
        Some(named.unwrap_or_else(|| text(&frontend)))
    }

    /// A note for stderr if the agent did not answer.
    pub fn hint(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        Some(format!(
            "note: addresses are shown instead of names: {}; try: {}",
            failure.message, failure.hint
        ))
    }
}

/// All slots of a service port.
pub fn slots(pinned: &Pinned, row: &ServiceRow) -> Vec<u32> {
    let protocol = service_protocol(&row.protocol).unwrap_or(0);
    let mut slots = Vec::new();
    for vip in &row.vips {
        let key = FrontendKey {
            address: octets(vip.address),
            port: vip.port,
            protocol,
            kind: FRONTEND_VIP,
        };
        let own = pinned.facts().cluster_ip(&key.address);
        let own = own.filter(|slot| pinned.slot(*slot).0.port == vip.port);
        let found = pinned
            .frontend(&key)
            .map(|value| value & !FRONTEND_SOURCE_RANGES);
        for slot in [own, found].into_iter().flatten() {
            let inside = pinned
                .slot_options(slot)
                .map(|options| options.internal_slot);
            slots.push(slot);
            slots.extend(inside.filter(|_| pinned.slot(slot).0.split));
        }
    }
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// A frontend as `address:port/protocol`.
pub fn text(frontend: &FrontendAddress) -> String {
    let protocol = match frontend.protocol {
        0 => "any".into(),
        number => protocol_name(number),
    };
    format!(
        "{}/{protocol}",
        SocketAddr::new(frontend.address, frontend.port)
    )
}

/// The number of a protocol of Services, by its name in any case.
pub fn service_protocol(name: &str) -> Option<u8> {
    protocol_number(name).filter(|number| matches!(*number, TCP | UDP | SCTP))
}
