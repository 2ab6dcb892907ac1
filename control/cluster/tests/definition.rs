//! `deploy/crd.yaml` matches the types it is generated from.

use std::{env, fs, path::Path};

use dormouse_cluster::{App, Revision};
use kube::CustomResourceExt;

/// Environment variable that makes the test rewrite the file instead of comparing it.
const RENEW: &str = "DORMOUSE_RENEW";

#[test]
fn the_deployed_definition_matches_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crd.yaml");
    let app = serde_saphyr::to_string(&App::definition()).unwrap();
    let revision = serde_saphyr::to_string(&Revision::crd()).unwrap();
    let want = format!(
        "# Generated from control/cluster/src/app.rs and revision.rs by {RENEW}=1 cargo test -p dormouse-cluster.\n{app}---\n{revision}"
    );
    if env::var_os(RENEW).is_some() {
        fs::write(&path, &want).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == want,
        "deploy/crd.yaml is stale: run {RENEW}=1 cargo test -p dormouse-cluster"
    );
}
