//! Problems of objects: each is reported, the invalid part is ignored, and the rest is applied.

use crate::key::PortId;
use crate::vip::Vip;

/// A problem of one object.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// The object has no name or namespace; it is ignored.
    #[error("a {kind} has no name or no namespace")]
    Nameless {
        /// The object's kind.
        kind: &'static str,
    },
    /// A field cannot be parsed; it is ignored.
    #[error("{object}: {field} cannot be `{value}`")]
    Field {
        /// The object, as `Kind namespace/name`.
        object: String,
        /// Path of the field.
        field: &'static str,
        /// Value of the field.
        value: String,
    },
    /// No entry of loadBalancerSourceRanges is a valid range of this family.
    #[error(
        "{object}: no entry of loadBalancerSourceRanges is a valid {family} range, so its {family} load balancer addresses {}",
        consequence(*refused)
    )]
    NoSourceRange {
        /// The object, as `Kind namespace/name`.
        object: String,
        /// The family's name.
        family: &'static str,
        /// Whether all sources are refused; else all are admitted.
        refused: bool,
    },
    /// Two services have the same address, port and protocol; the older one wins.
    #[error("{vip} is claimed by {winner} and by {loser}: the older wins; change the other")]
    Conflict {
        /// The address, port and protocol.
        vip: Vip,
        /// The service that wins.
        winner: PortId,
        /// The service that does not.
        loser: PortId,
    },
}

fn consequence(refused: bool) -> &'static str {
    if refused {
        "refuse every source; add a range"
    } else {
        "admit every source; add a range, or run the agent with --strict-source-ranges"
    }
}

/// Collects the problems of one object.
#[derive(Debug)]
pub(crate) struct Faults<'a> {
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    found: Vec<Problem>,
}

impl<'a> Faults<'a> {
    pub(crate) fn of(kind: &'static str, namespace: &'a str, name: &'a str) -> Self {
        Self {
            kind,
            namespace,
            name,
            found: Vec::new(),
        }
    }

    fn object(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    /// Adds a field that cannot be parsed.
    pub(crate) fn field(&mut self, field: &'static str, value: impl Into<String>) {
        self.found.push(Problem::Field {
            object: self.object(),
            field,
            value: value.into(),
        });
    }

    /// Adds that no source range of this family is valid, and whether that refuses all sources.
    pub(crate) fn no_source_range(&mut self, family: &'static str, refused: bool) {
        self.found.push(Problem::NoSourceRange {
            object: self.object(),
            family,
            refused,
        });
    }

    /// Returns a parsed value, and adds a problem otherwise.
    pub(crate) fn read<T>(
        &mut self,
        field: &'static str,
        text: &str,
        value: Option<T>,
    ) -> Option<T> {
        if value.is_none() {
            self.field(field, text);
        }
        value
    }

    pub(crate) fn found(self) -> Vec<Problem> {
        self.found
    }
}
