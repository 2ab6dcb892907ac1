//! Memory and run time of the data path, for benchmarks.

use std::path::Path;
use std::time::Duration;

use aya::maps::MapInfo;
use aya::programs::{TestRun as _, TestRunOptions};

use super::error::DatapathError;
use super::load::Loaded;

/// Minimum length of a frame for a test run, in bytes.
const FRAME_LEN: usize = 64;

/// Memory of each pinned map in bytes, as accounted by the kernel.
pub(super) fn memory(pins: &Path) -> Result<Vec<(String, u64)>, DatapathError> {
    let failed = |source| DatapathError::Folder {
        path: pins.to_path_buf(),
        source,
    };
    let mut maps = Vec::new();
    for pin in std::fs::read_dir(pins).map_err(failed)? {
        let pin = pin.map_err(failed)?;
        let name = pin.file_name().to_string_lossy().into_owned();
        // Links are pinned in the same folder.
        let Ok(map) = MapInfo::from_pin(pin.path()) else {
            continue;
        };
        maps.push((name, locked(&map).unwrap_or(0)));
    }
    maps.sort();
    Ok(maps)
}

/// `memlock` of the map's fdinfo: the current memory, not the size at creation.
fn locked(map: &MapInfo) -> Option<u64> {
    use std::os::fd::{AsFd as _, AsRawFd as _};
    let fd = map.fd().ok()?;
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd()));
    let text = text.ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("memlock:"))?;
    line.trim().parse().ok()
}

/// Mean duration of one test run of a program that is not attached.
pub(super) fn time(
    loaded: &mut Loaded,
    name: &'static str,
    runs: u32,
) -> Result<Duration, DatapathError> {
    let program = loaded.classifier(name)?;
    if program.fd().is_err() {
        program
            .load()
            .map_err(DatapathError::program("load", name))?;
    }
    let options = TestRunOptions {
        data_in: Some(&[0; FRAME_LEN]),
        repeat: runs,
        ..TestRunOptions::default()
    };
    let result = program
        .test_run(options)
        .map_err(DatapathError::program("run", name))?;
    Ok(result.duration)
}
