//! Services end to end: the real agent on two nodes follows a folder of manifests, and clients of every kind use the
//! Services, while manifests change, agents die and others take over.
//!
//! Tests share a cluster where they only read it or change Services of their own; those that disturb nodes have another.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and ends"
)]

mod checks;
mod cluster;
mod driver;
mod families;
mod floods;
mod forwarding;
mod half_open;
mod host_ports;
mod manifests;
mod migration;
mod narrow;
mod node;
mod other_hosts;
mod overlay;
mod paths;
mod pings;
mod restart;
mod routes;
mod stale;
mod transfers;

/// One test for each way, by one function.
macro_rules! by_each_way {
    ($test:ident, $check:path: $($way:ident($($argument:expr),+);)+) => {
        mod $test {
            use super::*;

            $(
                #[test]
                fn $way() {
                    $check($($argument),+);
                }
            )+
        }
    };
}
use by_each_way;

#[test]
#[ignore = "no test: the rig's own processes"]
fn process_of_the_rig() {
    dormouse_rig::role::play().unwrap();
}
