//! Names of services and of their ports, cheap to copy.

use std::fmt;
use std::sync::Arc;

use crate::address::Family;

/// The protocols of service ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// The protocol with this name, as in objects; without a name, TCP.
    pub fn named(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// Namespace and name of a Service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceKey {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name in the namespace.
    pub name: Arc<str>,
}

impl ServiceKey {
    /// The key of a Service.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The identity of a service port: one port of a Service, in one family.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortId {
    /// The Service.
    pub service: ServiceKey,
    /// Name of the port; empty if it has none.
    pub name: Arc<str>,
    /// Protocol of the port.
    pub protocol: Protocol,
    /// Family of its addresses and backends.
    pub family: Family,
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (service, name) = (&self.service, &self.name);
        write!(
            f,
            "{service}:{name} {} {}",
            self.protocol,
            self.family.name()
        )
    }
}
