//! A node that changes from kube-proxy: what `doctor` finds on it, what `uninstall --kube-proxy-leftovers` removes, and that no
//! connection fails or ends meanwhile.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod change;
mod doctor;
mod established;
mod kube_proxy;
mod leftovers;
mod rules;

#[test]
#[ignore = "no test: the rig's own processes"]
fn process_of_the_rig() {
    dormouse_rig::role::play().unwrap();
}
