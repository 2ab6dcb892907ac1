//! The network namespace of a run: the control plane's fixed ports are free in it, and the acting prefix is local.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The acting prefix of the control planes that are measured.
pub(crate) const ACTING_PREFIX: &str = "2001:db8:a1::/96";
/// The interfaces of all namespaces, one line each after two lines of headings.
const INTERFACES: &str = "/proc/net/dev";

/// Sets up the namespace, which must be a new one: nothing of the machine is changed.
pub(crate) fn prepare() -> Result<()> {
    let text = std::fs::read_to_string(INTERFACES)
        .with_context(|| format!("failed to read {INTERFACES}"))?;
    ensure!(
        is_new(&text),
        "this network namespace is in use: start the program as `cargo xtask bench apps` does"
    );
    ip(&["link", "set", "lo", "up"])?;
    ip(&["-6", "route", "add", "local", ACTING_PREFIX, "dev", "lo"])
}

/// Whether these are the interfaces of a namespace in which nothing was ever sent.
fn is_new(interfaces: &str) -> bool {
    let loopback = interfaces
        .lines()
        .find_map(|line| line.trim().strip_prefix("lo:"));
    let received = loopback.and_then(|counters| counters.split_ascii_whitespace().next());
    received == Some("0")
}

fn ip(arguments: &[&str]) -> Result<()> {
    let status = Command::new("ip").args(arguments).status();
    let status = status.context("failed to start `ip`: install iproute2")?;
    let line = arguments.join(" ");
    ensure!(status.success(), "`ip {line}` failed: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_traffic_is_not_new() {
        let heading = "Inter-|   Receive\n face |bytes\n";
        assert!(is_new(&format!(
            "{heading}    lo:       0       0\n  sit0: 0\n"
        )));
        assert!(!is_new(&format!("{heading}    lo: 84 1\n  eth0: 7\n")));
        assert!(!is_new(""));
    }
}
