//! The division of the process's file descriptors: the clients of one role cannot use up those of another.

use dormouse_activator::Config;
use tracing::{info, warn};

use crate::metrics::CONNECTIONS_MAX;
use crate::role::ROLES_MAX;
use crate::up::JOINS_MAX;

/// Descriptors for files, the roles' own listeners, and the connections between the roles.
const RESERVED: u64 = 640;
const _: () = assert!(RESERVED > (JOINS_MAX + 2 * ROLES_MAX + CONNECTIONS_MAX) as u64);

/// Parts that the activator needs: its clients, its connections to pods, and the ports of apps.
pub(crate) const ACTIVATOR_PARTS: u64 = 3;

/// Parts that the control plane always needs: the API's clients, and the nodes.
pub(crate) const CONTROL_PARTS: u64 = 2;

/// Parts that the store needs: its clients.
pub(crate) const STORE_PARTS: u64 = 1;

/// The connections of one of `parts` equal parts of `limit` descriptors, without what is reserved: at most half of them.
pub(crate) fn part(limit: u64, parts: u64) -> usize {
    let shared = limit.saturating_sub(RESERVED).max(limit / 2);
    usize::try_from((shared / parts.max(1)).max(1)).unwrap_or(usize::MAX)
}

/// Lowers the activator's limits of connections to a part of the descriptors, and logs the limit that holds.
pub(crate) fn limit_activator(config: &mut Config, part: usize) {
    let wanted = config.connections_max;
    config.limit_connections(part);
    let max = config.connections_max;
    if max < wanted {
        warn!(
            max,
            wanted,
            "the limit of file descriptors permits fewer clients of apps than --connections-max: raise it with ulimit -n or LimitNOFILE="
        );
    } else {
        info!(max, "limit of clients of apps");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_leave_descriptors_for_the_other_roles() {
        let all = CONTROL_PARTS + ACTIVATOR_PARTS + STORE_PARTS;
        for (limit, expected) in [(1024, 85), (4096, 576), (300, 25), (2, 1), (0, 1)] {
            assert_eq!(part(limit, all), expected, "{limit}");
        }
        assert_eq!(part(1024, ACTIVATOR_PARTS), 170);
        assert_eq!(part(1024, 0), 512);
    }
}
