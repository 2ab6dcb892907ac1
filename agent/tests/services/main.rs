//! Services end to end: the real agent on two nodes follows a folder of manifests, and clients of every kind use the
//! Services, while manifests change, agents die and others take over.
//!
//! Tests share a cluster where they only read it or change Services of their own; those that disturb nodes have another.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and ends"
)]

mod apps;
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
mod outside;
mod overlay;
mod paths;
mod pings;
mod restart;
mod routes;
mod stale;
mod transfers;
mod uplink;

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
    // Several tests of the same ways.
    ($($test:ident, $check:path);+ => $ways:tt) => {
        $(by_each_way! { @one $test, $check, $ways })+
    };
    (@one $test:ident, $check:path, { $($ways:tt)+ }) => {
        by_each_way! { $test, $check: $($ways)+ }
    };
}
use by_each_way;

#[test]
#[ignore = "no test: the rig's own processes"]
fn process_of_the_rig() {
    dormouse_rig::role::play().unwrap();
}
