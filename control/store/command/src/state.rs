//! The state that the store starts with: of a data directory, or empty.

use std::time::{SystemTime, UNIX_EPOCH};

use dormouse_store::{Limits, Store, durable::DataDir};

use crate::{Flags, RunError};

/// The first revision that clients do not take for a number of JavaScript any more.
const REVISION_END: i64 = 1 << 53;

/// Opens the store that the flags describe.
pub(crate) async fn open(limits: Limits, flags: &Flags) -> Result<Store, RunError> {
    let Some(path) = flags.data_dir.clone() else {
        let revision = flags.initial_revision.unwrap_or_else(from_clock);
        return Ok(match revision {
            1 => Store::with_limits(limits),
            _ => Store::starting_at(limits, revision),
        });
    };
    let data = DataDir {
        path: path.clone(),
        policy: flags.durability.policy(),
    };
    let opened = tokio::task::spawn_blocking(move || Store::open(limits, &data)).await?;
    opened.map_err(|source| RunError::Open { path, source })
}

/// The time in microseconds: a store in memory that writes less than a million revisions a second
/// never repeats one after a restart.
fn from_clock() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = now.map_or(1, |now| now.as_micros());
    i64::try_from(micros).map_or(REVISION_END - 1, |micros| micros.clamp(1, REVISION_END - 1))
}
