//! Leaves the cluster running for a look around, and says what to try.

use anyhow::Result;

use super::claims;
use super::cluster::{Cluster, DOCS, HELLO};
use crate::binaries;
use crate::progress::say;

/// Applies the examples, prints what to try next, and returns when the person pressed Ctrl-C.
pub(super) fn keep(cluster: &mut Cluster) -> Result<()> {
    claims::wake::apply(cluster)?;
    let world = cluster.world();
    let enter = |host: &dormouse_world::Host| format!("nsenter --net={}", host.netns.display());
    let client = enter(world.client());
    let control = format!("{} {}", enter(world.control()), cluster.command_line());
    say("\nThe cluster runs. Three apps sleep; as root, try:\n");
    say(&format!(
        "  wake one        {client} curl -i http://[{}]/",
        HELLO.vip
    ));
    say(&format!(
        "  the web server  {client} curl http://[{}]/BENCHMARKS.md",
        DOCS.vip
    ));
    say(&format!("  what runs       {control} get apps"));
    say(&format!("  what was slow   {control} wake timeline hello"));
    say(&format!("  why             {control} explain app careful"));
    if let Some(node) = world.nodes().first() {
        say(&format!(
            "  in the kernel   bpftool map dump pinned {}/v1/lease",
            node.bpffs.display()
        ));
        say(&format!(
            "  logs            ls {}/*.log",
            node.folder.display()
        ));
    }
    say(&format!(
        "\nThe examples are {}. Ctrl-C ends and removes everything.",
        binaries::root().join("deploy/examples/apps.yaml").display()
    ));
    cluster.interrupt().wait();
    Ok(())
}
