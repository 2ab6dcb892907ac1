//! The file descriptors of the process, of which connections must leave some for the journal.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that connections leave for files, listeners and the runtime; etcd's number.
const RESERVED: u64 = 150;

/// The limit of a process that has none, so that the number of connections has one.
const LIMIT_MAX: u64 = 1 << 20;

/// Raises the process's limit of file descriptors as far as the system allows; returns the limit, at most 1,048,576.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        // The limit stays as it was.
        Err(_) => limit.current,
    };
    limit.unwrap_or(LIMIT_MAX).min(LIMIT_MAX)
}

/// The number of connections that the raised limit permits.
pub(super) fn connections_max() -> usize {
    connections(raise_descriptor_limit())
}

/// Connections under a limit: half of it, if it is too low for the reserve.
fn connections(limit: u64) -> usize {
    let limit = limit.min(LIMIT_MAX);
    let connections = limit.saturating_sub(RESERVED).max(limit / 2).max(1);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_files() {
        assert_eq!(connections(1024), 874);
        assert_eq!(connections(u64::MAX), 1_048_426);
        // Limits below twice the reserve.
        assert_eq!(connections(200), 100);
        assert_eq!(connections(1), 1);
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        connections_max();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
