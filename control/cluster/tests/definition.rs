//! `deploy/crd.yaml` is what the types say.

use std::{env, fs, path::Path};

use dormouse_cluster::App;

/// Rewrites the file instead of comparing it, when set.
const RENEW: &str = "DORMOUSE_RENEW";

#[test]
fn the_deployed_definition_is_the_one_that_the_types_generate() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crd.yaml");
    let definition = serde_saphyr::to_string(&App::definition()).unwrap();
    let want = format!(
        "# Written from control/cluster/src/app.rs; renew it with {RENEW}=1 cargo test -p dormouse-cluster.\n{definition}"
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
