//! `--keep`: the cluster stays up until Ctrl-C, and commands to try are printed.

use anyhow::Result;

use super::claims;
use super::cluster::{Cluster, DOCS, HELLO};
use crate::binaries;
use crate::progress::say;

/// Applies the examples, prints commands to try, and returns at Ctrl-C.
pub(super) fn keep(cluster: &mut Cluster) -> Result<()> {
    claims::wake::apply(cluster)?;
    let world = cluster.world();
    let enter = |host: &dormouse_world::Host| format!("nsenter --net={}", host.netns.display());
    let client = enter(world.client());
    let control = format!("{} {}", enter(world.control()), cluster.program().display());
    say("\nThe cluster is running with three sleeping apps. As root, try:\n");
    say(&format!(
        "  export KUBECONFIG={}",
        cluster.kubeconfig().display()
    ));
    say(&format!(
        "  wake an app     {client} curl -i http://[{}]/",
        HELLO.vip
    ));
    say(&format!(
        "  the web server  {client} curl http://[{}]/BENCHMARKS.md",
        DOCS.vip
    ));
    say(&format!("  list the apps   {control} get apps"));
    say(&format!("  wake timeline   {control} wake timeline hello"));
    say(&format!("  explain         {control} explain app careful"));
    say(&format!("  output          {control} logs app/hello"));
    if let Some(node) = world.nodes().first() {
        say(&format!(
            "  in the kernel   bpftool map dump pinned {}",
            node.pinned("lease")?.display()
        ));
        say(&format!(
            "  logs            ls {}/*.log",
            node.folder.display()
        ));
    }
    say(&format!(
        "\nThe examples are {}. Ctrl-C stops and removes everything.",
        binaries::root().join("deploy/examples/apps.yaml").display()
    ));
    cluster.interrupt().wait();
    Ok(())
}
