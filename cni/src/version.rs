//! The supported versions of the CNI specification.

use std::fmt;

/// A `cniVersion` that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown cniVersion `{0}`")]
pub struct UnknownVersion(pub String);

/// A version of the specification, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpecVersion {
    /// 0.1.0: results have `ip4` and `ip6`.
    V0_1_0,
    /// 0.2.0: as 0.1.0.
    V0_2_0,
    /// 0.3.0: results have `interfaces` and `ips`.
    V0_3_0,
    /// 0.3.1: as 0.3.0.
    V0_3_1,
    /// 0.4.0: adds CHECK.
    V0_4_0,
    /// 1.0.0: entries of `ips` have no `version` any more.
    V1_0_0,
    /// 1.1.0: adds STATUS and GC.
    V1_1_0,
}

impl SpecVersion {
    /// All supported versions, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// The form in a configuration: `1.1.0`.
    pub fn text(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Reads a configuration's `cniVersion`; an absent or empty one means 0.1.0.
    pub fn parse(text: &str) -> Result<Self, UnknownVersion> {
        if text.is_empty() {
            return Ok(Self::V0_1_0);
        }
        Self::ALL
            .into_iter()
            .find(|v| v.text() == text)
            .ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
