//! What CNI asks of a plugin, as a black box: the binary is executed as a container runtime does, in namespaces, and its
//! exit status, its output and the kernel's state are judged. The reference plugins prove the suite: what they do
//! otherwise is listed with its reason. See docs/CNI.md.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says why and ends"
)]

mod call;
mod cases;
mod check;
mod deviations;
mod golden;
mod kernel;
#[path = "../cni/node.rs"]
#[expect(dead_code, reason = "other tests ask more of a node")]
mod node;
#[path = "../cni/plugin.rs"]
#[expect(
    dead_code,
    reason = "only its binary: cases call it in ways of their own"
)]
mod plugin;
mod run;
mod stage;
mod subject;

use std::path::PathBuf;

/// Names a folder with the reference plugins, to play the cases on them too.
const REFERENCE: &str = "DORMOUSE_CNI_REFERENCE";

#[test]
fn our_plugin_conforms() {
    run::run(&subject::ours(), &cases::all());
}

/// The folder of the reference plugins, or a word that there is none.
fn reference() -> Option<PathBuf> {
    let folder = std::env::var_os(REFERENCE).map(PathBuf::from);
    if folder.is_none() {
        run::tell(&format!("the reference is skipped: {REFERENCE} is not set"));
    }
    folder
}

#[test]
fn the_reference_proves_the_suite() {
    if let Some(folder) = reference() {
        run::run(&subject::reference(&folder), &cases::all());
    }
}

#[test]
fn the_reference_bridge_draws_addresses_from_our_plugin() {
    if let Some(folder) = reference() {
        let links = tempfile::tempdir().unwrap();
        let subject = subject::reference_over_ours(&folder, links.path());
        run::run(&subject, &cases::delegated());
    }
}
