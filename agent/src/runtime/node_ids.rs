//! The users and groups of the node: a pod with one of their numbers would have their rights to the node's files.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use super::spec::Security;

/// nobody and nogroup, which have rights to no file.
const NOBODY: u32 = 65_534;

/// Numbers that pods may not choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NodeIds {
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
}

/// Whether a pod asks for a number of the node. Most pods name none, and then nothing is read.
pub(super) fn are_taken(security: &Security) -> io::Result<bool> {
    let names_none =
        security.user.is_none() && security.group.is_none() && security.groups.is_empty();
    Ok(!names_none && NodeIds::read()?.have(security))
}

impl NodeIds {
    /// Those of /etc/passwd and /etc/group. Users of a directory service are not seen.
    fn read() -> io::Result<Self> {
        Ok(Self {
            users: numbers(&fs::read_to_string("/etc/passwd")?),
            groups: numbers(&fs::read_to_string("/etc/group")?),
        })
    }

    /// Whether a pod asks for a number of the node.
    fn have(&self, security: &Security) -> bool {
        let group = security.group.or(security.user);
        let mut groups = security.groups.iter().chain(&group);
        let user = security.user.as_ref();
        user.is_some_and(|user| self.users.contains(user))
            || groups.any(|group| self.groups.contains(group))
    }
}

/// The third fields of lines (passwd(5), group(5)).
fn numbers(text: &str) -> BTreeSet<u32> {
    let fields = text.lines().filter_map(|line| line.split(':').nth(2));
    let numbers = fields.filter_map(|field| field.parse().ok());
    numbers.filter(|number| *number != NOBODY).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_neither_a_user_nor_a_group_of_the_node() {
        let ids = NodeIds {
            users: numbers("root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n"),
            groups: numbers("shadow:x:42:\nann:x:1000:\nnogroup:x:65534:\n+\n"),
        };
        let security = |user, group, groups: &[u32]| Security {
            user,
            group,
            groups: groups.to_vec(),
            is_filtered: true,
        };
        for refused in [
            security(Some(1000), Some(7), &[]),
            security(None, Some(42), &[]),
            security(Some(7), None, &[8, 42]),
            // Its group has the user's number.
            security(Some(42), None, &[]),
        ] {
            assert!(ids.have(&refused), "{refused:?}");
        }
        for accepted in [
            security(None, None, &[]),
            security(Some(7), None, &[8]),
            security(Some(65_534), Some(65_534), &[]),
        ] {
            assert!(!ids.have(&accepted), "{accepted:?}");
        }
    }
}
