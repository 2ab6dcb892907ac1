//! Metrics of the process, under the names of Prometheus' clients, read from /proc/self when the
//! metrics are encoded. What cannot be read is left out.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

/// Ticks of a second in /proc/self/stat: a constant of the kernel's interface.
const TICKS: f64 = 100.0;

/// Encodes the metrics of the process.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauges = [
            (
                "process_resident_memory_bytes",
                "Resident memory",
                resident_bytes(),
            ),
            ("process_open_fds", "Open file descriptors", open_files()),
            (
                "process_max_fds",
                "Limit of the open file descriptors",
                open_files_max(),
            ),
            (
                "process_start_time_seconds",
                "Start, in seconds of the Unix time",
                start_s(),
            ),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        if let Some(seconds) = cpu_s() {
            let counter = ConstCounter::new(seconds);
            let (name, help) = ("process_cpu_seconds", "Processor time");
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        Ok(())
    }
}

/// The number after a name in a file of lines `NAME NUMBER`.
fn number_after(path: &str, name: &str) -> Option<i64> {
    let text = fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn resident_bytes() -> Option<i64> {
    Some(number_after("/proc/self/status", "VmRSS:")? * 1024)
}

fn open_files() -> Option<i64> {
    i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}

fn open_files_max() -> Option<i64> {
    number_after("/proc/self/limits", "Max open files")
}

/// The field of a number in /proc/self/stat, as proc_pid_stat(5) counts them, in seconds.
fn stat_s(field: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is a name in brackets, which may have spaces.
    let (_, rest) = stat.rsplit_once(") ")?;
    let ticks: f64 = rest.split(' ').nth(field - 3)?.parse().ok()?;
    Some(ticks / TICKS)
}

fn cpu_s() -> Option<f64> {
    const USER: usize = 14;
    const SYSTEM: usize = 15;
    Some(stat_s(USER)? + stat_s(SYSTEM)?)
}

fn start_s() -> Option<i64> {
    const START: usize = 22;
    let after_boot = stat_s(START)?.round();
    #[expect(clippy::cast_possible_truncation, reason = "seconds of this boot")]
    let after_boot = after_boot as i64;
    Some(number_after("/proc/stat", "btime")? + after_boot)
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_numbers_of_this_process_are_plausible() {
        assert!(resident_bytes().unwrap() > 1 << 20);
        let (open, max) = (open_files().unwrap(), open_files_max().unwrap());
        assert!(open >= 3 && open <= max, "{open} of {max}");
        assert!(cpu_s().unwrap() >= 0.0);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let started = start_s().unwrap().unsigned_abs();
        assert!(
            started <= now + 1 && started > 1_000_000_000,
            "{started} at {now}"
        );
    }
}
