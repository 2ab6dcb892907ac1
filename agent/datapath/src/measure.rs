//! What the data path costs: for measurements.

use std::path::Path;
use std::time::Duration;

use aya::maps::MapInfo;
use aya::programs::{TestRun as _, TestRunOptions};

use super::error::DatapathError;
use super::load::Loaded;

/// The shortest frame that the kernel takes for a run.
const FRAME_LEN: usize = 64;

/// The memory of each pinned map in bytes, as the kernel accounts for it.
pub(super) fn memory(pins: &Path) -> Result<Vec<(String, u64)>, DatapathError> {
    let failed = |source| DatapathError::Folder {
        path: pins.to_path_buf(),
        source,
    };
    let mut maps = Vec::new();
    for pin in std::fs::read_dir(pins).map_err(failed)? {
        let pin = pin.map_err(failed)?;
        let name = pin.file_name().to_string_lossy().into_owned();
        // Links are pinned beside the maps.
        let Ok(map) = MapInfo::from_pin(pin.path()) else {
            continue;
        };
        maps.push((name, locked(&map).unwrap_or(0)));
    }
    maps.sort();
    Ok(maps)
}

/// `memlock` of the map's fdinfo: what it holds now, not only what it was made with.
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

/// The mean time of one run of a program that is attached nowhere.
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
