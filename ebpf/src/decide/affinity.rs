//! Session affinity: the backend that a client is bound to, and the entry that binds it.

use crate::decide::Choice;
use crate::maps::{
    Affinity, AffinityKey, Backend, FOR_CLUSTER, FOR_LOCAL, RANK_SHIFT, SlotOptions,
};
use crate::tables::Tables;
use crate::trace::Step;

/// The backend that the client is bound to, if the slot may still use it: one of policy Local if `local`. If two entries are
/// valid, the backend whose address sorts first as text, as with kube-proxy.
#[inline(always)]
pub(super) fn backend<T: Tables>(
    tables: &T,
    client: &[u8; 16],
    options: &SlotOptions,
    local: bool,
) -> Option<(u32, Backend)> {
    let key = AffinityKey {
        client: *client,
        group: options.group,
    };
    let affinity = tables.affinity(&key)?;
    let now = tables.now_ns();
    let wanted = if local { FOR_LOCAL } else { FOR_CLUSTER };
    // The rank of a usable backend; above all ranks for one that is not.
    let rank = |place: usize| {
        let seen_ns = affinity.seen_ns[place];
        let fresh = now.saturating_sub(seen_ns) <= u64::from(options.affinity_s) * 1_000_000_000;
        match tables.backend(affinity.ids[place]) {
            Some(backend)
                if seen_ns != 0
                    && fresh
                    && backend.flags & wanted != 0
                    && u32::from(backend.generation) == affinity.generations[place] =>
            {
                u32::from(backend.flags >> RANK_SHIFT)
            }
            _ => u32::MAX,
        }
    };
    let (first, second) = (rank(0), rank(1));
    if first == u32::MAX && second == u32::MAX {
        return None;
    }
    let id = affinity.ids[usize::from(second < first)];
    let backend = tables.backend(id)?;
    tables.trace(Step::Affinity, u64::from(id), 0);
    Some((id, backend))
}

/// The client's affinity entry after this choice: the backend's own half is refreshed, else one that binds to no backend is
/// replaced, else the older one.
#[inline(always)]
#[must_use]
pub fn record_affinity<T: Tables>(
    tables: &T,
    before: Option<Affinity>,
    choice: &Choice,
    now_ns: u64,
) -> Affinity {
    let mut affinity = before.unwrap_or_default();
    let is = |place: usize| {
        affinity.ids[place] == choice.backend && affinity.generations[place] == choice.generation
    };
    // A client that uses both policies keeps the backend of one when that of the other is gone.
    let binds = |place: usize| {
        let row = tables.backend(affinity.ids[place]);
        affinity.seen_ns[place] != 0
            && row.is_some_and(|row| {
                row.flags & (FOR_CLUSTER | FOR_LOCAL) != 0
                    && u32::from(row.generation) == affinity.generations[place]
            })
    };
    let older_second = affinity.seen_ns[1] < affinity.seen_ns[0];
    let second = is(1) || !is(0) && binds(0) && (older_second || !binds(1));
    if second {
        affinity.ids[1] = choice.backend;
        affinity.generations[1] = choice.generation;
        affinity.seen_ns[1] = now_ns;
    } else {
        affinity.ids[0] = choice.backend;
        affinity.generations[0] = choice.generation;
        affinity.seen_ns[0] = now_ns;
    }
    affinity
}
