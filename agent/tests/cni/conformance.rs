//! Conformance to CNI, as a black box: the binary is executed as a container runtime does, in namespaces, and its exit
//! status, its output and the kernel's state are checked. The reference plugins validate the suite: their deviations are
//! listed with their reasons. docs/CNI.md describes it.

mod call;
mod cases;
mod check;
mod deviations;
mod golden;
mod kernel;
mod run;
mod stage;
mod subject;

use dormouse_rig::binaries::reference_plugins;

#[test]
fn our_plugin_conforms() {
    run::run(&subject::ours(), &cases::all());
}

#[test]
fn the_reference_proves_the_suite() {
    run::run(&subject::reference(&reference_plugins()), &cases::all());
}

#[test]
fn the_reference_bridge_draws_addresses_from_our_plugin() {
    let links = tempfile::tempdir().unwrap();
    let subject = subject::reference_over_ours(&reference_plugins(), links.path());
    run::run(&subject, &cases::delegated());
}
