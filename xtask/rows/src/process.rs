//! The counters of a process: its CPU time, its resident memory, its context switches.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// A tick of the CPU times in /proc/PID/stat: USER_HZ is 100 on every architecture that Rust's standard library supports.
const TICK: Duration = Duration::from_millis(10);
/// Bytes of the unit of /proc/PID/status.
const KIB: u64 = 1024;

/// A process on this machine, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(pub u32);

impl Process {
    /// The CPU time so far, user and system, of all its threads.
    pub fn cpu(self) -> Result<Duration> {
        ticks(&self.file("stat")?).map(|ticks| TICK * ticks)
    }

    /// The resident memory, in bytes.
    pub fn resident(self) -> Result<u64> {
        field(&self.file("status")?, "VmRSS:").map(|kib| kib * KIB)
    }

    /// The highest resident memory so far, in bytes.
    pub fn resident_peak(self) -> Result<u64> {
        field(&self.file("status")?, "VmHWM:").map(|kib| kib * KIB)
    }

    /// The context switches of all its threads so far, voluntary or not.
    pub fn switches(self) -> Result<u64> {
        let path = format!("/proc/{}/task", self.0);
        let threads = std::fs::read_dir(&path).with_context(|| format!("failed to list {path}"))?;
        let mut sum = 0;
        for thread in threads {
            let name = thread?.file_name();
            // A thread that has ended since the listing counts for nothing.
            let Ok(status) = self.file(&format!("task/{}/status", name.display())) else {
                continue;
            };
            sum += field(&status, "voluntary_ctxt_switches:")?;
            sum += field(&status, "nonvoluntary_ctxt_switches:")?;
        }
        Ok(sum)
    }

    fn file(self, name: &str) -> Result<String> {
        let path = format!("/proc/{}/{name}", self.0);
        std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))
    }
}

/// The sum of `utime` and `stime` (proc(5)) in the text of /proc/PID/stat.
fn ticks(stat: &str) -> Result<u32> {
    // The second field is the name in parentheses, which may contain spaces.
    let (_, fields) = stat
        .rsplit_once(") ")
        .context("/proc/PID/stat has no name")?;
    let times: Vec<u32> = fields
        .split(' ')
        .skip(11)
        .take(2)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    ensure!(times.len() == 2, "/proc/PID/stat has no CPU times");
    Ok(times.iter().sum())
}

/// The number of a field (proc(5)) in the text of /proc/PID/status, without its unit.
fn field(status: &str, name: &str) -> Result<u64> {
    let Some(line) = status.lines().find_map(|line| line.strip_prefix(name)) else {
        bail!("/proc/PID/status has no {name}");
    };
    let number = line.trim().trim_end_matches(" kB");
    number
        .parse()
        .with_context(|| format!("{name} is not a number in /proc/PID/status"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_found_after_a_name_with_spaces() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 30 0 0 20 0 3 0 5 6 7";
        assert_eq!(ticks(stat).unwrap(), 42);
        assert!(ticks("7 (a) S 1").is_err());
        assert!(ticks("").is_err());
    }

    #[test]
    fn fields_are_numbers_with_or_without_a_unit() {
        let status = "Name:\ta\nVmRSS:\t   2048 kB\nvoluntary_ctxt_switches:\t7\n";
        assert_eq!(field(status, "VmRSS:").unwrap(), 2048);
        assert_eq!(field(status, "voluntary_ctxt_switches:").unwrap(), 7);
        assert!(field("Name:\ta\n", "VmRSS:").is_err());
        assert!(field("VmRSS:\tmany kB\n", "VmRSS:").is_err());
    }

    #[test]
    fn a_process_reads_its_own_counters() {
        let this = Process(std::process::id());
        assert!(this.resident().unwrap() > 0);
        assert!(this.switches().unwrap() > 0);
        this.cpu().unwrap();
    }
}
