//! `dormouse-agent uninstall`: removes a node's objects from the machine, or what kube-proxy left on it, and prints each.

use std::io::{self, Write};

use anyhow::{Context, Result, bail, ensure};

use super::{Uninstall, bpffs, check_name};
use crate::doctor::probe::processes;
use crate::leftovers::{self, Found, Leftover};
use crate::uninstall::{NodePaths, look, remove};

/// Removes what the flags say, or lists it with `--dry-run`.
pub(super) fn run(flags: &Uninstall, out: &mut dyn Write) -> Result<()> {
    if flags.kube_proxy_leftovers {
        return remove_leftovers(flags, out);
    }
    let node = flags.node.as_deref().context("--node is needed")?;
    check_name(node)?;
    uninstall(node, flags, out)
}

/// Removes what kube-proxy left.
fn remove_leftovers(flags: &Uninstall, out: &mut dyn Write) -> Result<()> {
    let found = leftovers::look();
    let running = processes::kube_proxy();
    let refused = running.first().filter(|_| !flags.force);
    if flags.dry_run {
        for line in found.leftovers.iter().flat_map(Leftover::lines) {
            writeln!(out, "would remove {line}")?;
        }
        if let Some(pid) = refused {
            writeln!(
                out,
                "refused without --force: kube-proxy runs (process {pid})"
            )?;
        }
        let unknown = &found.unknown;
        ensure!(
            unknown.is_empty(),
            "there may be more: cannot look at {}",
            unknown.join("; ")
        );
        return Ok(());
    }
    if let Some(pid) = refused {
        bail!(
            "kube-proxy runs (process {pid}), and would write its rules again: remove it first, or give --force"
        );
    }
    remove_each(&found, Leftover::remove, out)
}

/// Removes what was found, and prints each. Goes on after a failure, and if stdout is closed, and reports that at the end; fails, too,
/// if there may be more that could not be looked at.
fn remove_each(
    found: &Found,
    remove: impl Fn(&Leftover) -> io::Result<()>,
    out: &mut dyn Write,
) -> Result<()> {
    let mut written = Ok(());
    let mut problems = Vec::new();
    let mut has_servers = false;
    for leftover in &found.leftovers {
        if has_servers && matches!(leftover, Leftover::Link { .. }) {
            problems.push(format!(
                "{leftover} stays, as the services of IPVS are found by its addresses"
            ));
            continue;
        }
        match remove(leftover) {
            Ok(()) => {
                let mut lines = leftover.lines().into_iter();
                written = written
                    .and_then(|()| lines.try_for_each(|line| writeln!(out, "removed {line}")));
            }
            Err(error) => {
                has_servers |= matches!(leftover, Leftover::VirtualServer(_));
                problems.push(format!("failed to remove {leftover}: {error}"));
            }
        }
    }
    let unknown = found.unknown.iter();
    problems.extend(unknown.map(|what| format!("cannot look at {what}")));
    ensure!(
        problems.is_empty(),
        "{}; the rest is removed",
        problems.join("; ")
    );
    written?;
    Ok(())
}

/// Removes the node's objects, or lists them with `--dry-run`.
fn uninstall(node: &str, flags: &Uninstall, out: &mut dyn Write) -> Result<()> {
    let paths = NodePaths {
        node: node.to_owned(),
        bpffs: bpffs(flags.bpffs.as_ref(), node),
        state_dir: flags.state_dir.clone(),
        socket: flags.socket.clone(),
        bridge: flags.bridge.clone(),
        cgroup: flags.cgroup.clone(),
    };
    let plan = look(&paths)?;
    if flags.dry_run {
        for removal in &plan.removals {
            writeln!(out, "would remove {removal}")?;
        }
        for pod in &plan.live {
            writeln!(out, "refused without --force: pod {pod} is running")?;
        }
        return Ok(());
    }
    let mut written = Ok(());
    let removed = remove(&paths, &plan, flags.force, |removal| {
        if written.is_ok() {
            written = writeln!(out, "removed {removal}");
        }
    });
    // Removal goes on if stdout is closed; the write error is reported after it.
    removed?;
    written?;
    for container in &plan.left {
        writeln!(
            out,
            "container {container} runs on without its network: kubectl delete pod, or crictl rmp --force {container}"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leftovers::ipvs::VirtualServer;

    fn found() -> Found {
        let server = VirtualServer {
            protocol: "TCP".to_owned(),
            address: [10, 96, 0, 1].into(),
            port: 443,
        };
        Found {
            leftovers: vec![
                Leftover::NftTable { family: "ip" },
                Leftover::VirtualServer(server),
                Leftover::Link { index: 7 },
            ],
            unknown: Vec::new(),
        }
    }

    /// What is printed, and the error, while the removal of these fails.
    fn removed(found: &Found, fails: impl Fn(&Leftover) -> bool) -> (String, Option<String>) {
        let remove = |leftover: &Leftover| {
            if fails(leftover) {
                return Err(io::Error::other("busy"));
            }
            Ok(())
        };
        let mut out = Vec::new();
        let error = remove_each(found, remove, &mut out).err();
        (
            String::from_utf8(out).unwrap(),
            error.map(|error| error.to_string()),
        )
    }

    #[test]
    fn the_link_stays_while_a_service_of_ipvs_does() {
        let (out, error) = removed(&found(), |_| false);
        assert_eq!((out.lines().count(), error), (3, None));
        let (out, error) = removed(&found(), |one| matches!(one, Leftover::VirtualServer(_)));
        assert_eq!(out, "removed nftables: table ip kube-proxy\n");
        let error = error.unwrap();
        assert!(
            error.contains("ipvs: TCP 10.96.0.1:443: busy") && error.contains("kube-ipvs0 stays"),
            "{error}"
        );
        let (out, _) = removed(&found(), |one| matches!(one, Leftover::NftTable { .. }));
        assert!(out.ends_with("removed link kube-ipvs0\n"), "{out}");
    }

    #[test]
    fn what_cannot_be_looked_at_fails_the_removal_at_its_end() {
        let mut found = found();
        found.unknown.push("nftables: no nft".to_owned());
        let (out, error) = removed(&found, |_| false);
        assert_eq!(out.lines().count(), 3);
        let text = "cannot look at nftables: no nft; the rest is removed";
        assert_eq!(error.unwrap(), text);
    }

    #[test]
    fn a_closed_stdout_ends_no_removal() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let count = std::cell::Cell::new(0);
        let remove = |_: &Leftover| {
            count.set(count.get() + 1);
            Ok(())
        };
        let removed = remove_each(&found(), remove, &mut Closed);
        assert!(removed.is_err());
        assert_eq!(count.get(), 3);
    }
}
