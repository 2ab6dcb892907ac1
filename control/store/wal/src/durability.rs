//! The durability modes of a write.

use std::{fmt, str::FromStr};

/// What a write survives once it is acknowledged; a later variant includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Held in memory only.
    None,
    /// Written to the file at most 10 ms after the acknowledgement.
    Buffered,
    /// Written to the file (the kernel's page cache) before the acknowledgement: survives the end of
    /// the process.
    Os,
    /// Synced to the disk before the acknowledgement: survives a power loss.
    Fsync,
}

/// A text that names no durability mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a durability mode: use none, buffered, os or fsync")]
pub struct UnknownDurability(String);

impl FromStr for Durability {
    type Err = UnknownDurability;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "buffered" => Ok(Self::Buffered),
            "os" => Ok(Self::Os),
            "fsync" => Ok(Self::Fsync),
            _ => Err(UnknownDurability(text.to_owned())),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Buffered => "buffered",
            Self::Os => "os",
            Self::Fsync => "fsync",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_parsed_from_its_name_and_a_later_mode_is_stricter() {
        let modes = ["none", "buffered", "os", "fsync"].map(|name| {
            let mode: Durability = name.parse().unwrap();
            assert_eq!(mode.to_string(), name);
            mode
        });
        assert!(modes.is_sorted());
        let error = "disk".parse::<Durability>().unwrap_err();
        assert!(error.to_string().contains("use none"));
    }
}
