//! Mutated packets through every packet program: the test of the agent that judges each of them, with many more packets.

use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries;
use crate::progress::{self, Output};
use crate::report::{Bound, Report, Row};

/// Packets, where the environment does not name another number.
const PACKETS: u64 = 100_000_000;
/// The variable that names the number for the test.
const VARIABLE: &str = "DORMOUSE_MUTATED_PACKETS";
/// The test, of the package `dormouse-agent`.
const TEST: &str = "mutated::no_mutated_packet_passes_that_must_not";

/// Builds the test, optimised, and runs it; it fails with the first packet of each kind that became what the oracle does not allow.
pub(super) fn measure(report: &mut Report) -> Result<()> {
    let packets = std::env::var(VARIABLE).map_or(Ok(PACKETS), |text| text.parse());
    let packets = packets.with_context(|| format!("{VARIABLE} is not a number"))?;
    let title = "build the test of mutated packets, optimised";
    progress::run(title, test().arg("--no-run"), Output::ErrorsOnFailure)?;
    let title = format!("send {packets} mutated packets through the packet programs");
    let mut command = test();
    command.args([TEST, "--", "--exact", "--nocapture"]);
    command.env(VARIABLE, packets.to_string());
    let output = progress::run(&title, &mut command, Output::OnFailure)?;
    let (judged, seconds) = read(&output).context("the test printed no number of packets")?;
    let row = Row::counted(
        "mutated packets, each judged by the oracle",
        judged,
        "packets",
    );
    report.push(row.must(Bound::AtLeast(packets as f64)));
    // The test fails otherwise.
    let claim = "no verdict, address or checksum that the oracle does not allow";
    report.push(Row::claim(claim, true, &format!("{judged} packets")));
    let rate = judged as f64 / seconds;
    report.push(Row::measured(
        "mutated packets, mutated and judged",
        rate,
        "packets/s",
    ));
    Ok(())
}

fn test() -> Command {
    let mut command = binaries::cargo();
    command.args(["test", "--release", "--package", "dormouse-agent"]);
    command.args(["--test", "programs"]);
    command
}

/// The number of packets and the seconds, from the line in which the test prints them.
fn read(output: &str) -> Option<(u64, f64)> {
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix("packets\t"))?;
    let (packets, seconds) = line.split_once('\t')?;
    Some((packets.parse().ok()?, seconds.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_packets_is_found_among_the_tests_lines() {
        let output = "running 1 test\n\npackets\t1000000\t12.5\ntcx_pod_in\tDropped\t7\n";
        assert_eq!(read(output), Some((1_000_000, 12.5)));
        assert_eq!(read("test result: ok"), None);
    }
}
