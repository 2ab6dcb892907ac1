//! The memory of a million sleeping apps.

use anyhow::{Context, Result, ensure};

use super::sleeping::{self, Bounds};
use super::{Options, folder};

const APPS: u32 = 1_000_000;
/// Free memory without which the machine might kill other programs: three times what must be reached, for it and its store's files.
const FREE_BYTES: u64 = 6 << 30;

pub(super) async fn run(options: &Options) -> Result<()> {
    let free =
        free(&std::fs::read_to_string("/proc/meminfo").context("failed to read /proc/meminfo")?)?;
    ensure!(
        free >= FREE_BYTES,
        "{} GiB of memory are free, and the control plane with its clients may need {}",
        free >> 30,
        FREE_BYTES >> 30
    );
    let folder = folder()?;
    let bounds = Bounds {
        apart: 250.0,
        whole: 2_200.0,
    };
    let up = sleeping::memory(options.site(&folder), APPS, bounds).await?;
    up.stop().await
}

/// `MemAvailable` (proc(5)) in the text of /proc/meminfo, in bytes.
fn free(text: &str) -> Result<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let number = line.context("/proc/meminfo has no MemAvailable")?.trim();
    let kib: u64 = number.trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_read_in_bytes() {
        assert_eq!(
            free("MemTotal: 9 kB\nMemAvailable:   2 kB\n").unwrap(),
            2048
        );
        assert!(free("MemTotal: 9 kB\n").is_err());
    }
}
