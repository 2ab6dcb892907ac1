//! Memory and run time of the data path, for benchmarks.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use aya::maps::MapInfo;
use aya::programs::{TestRun as _, TestRunAttrs, TestRunOptions};
use dormouse_agent_sys::bpf;

use super::error::DatapathError;
use super::load::Loaded;
use super::xdp;

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
    use std::os::fd::AsRawFd as _;
    let fd = map.fd().ok()?;
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd()));
    let text = text.ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("memlock:"))?;
    line.trim().parse().ok()
}

/// Puts a program of measurements in the place of the uplink's XDP program, until the data path is opened again.
pub(super) fn replace_xdp(
    loaded: &mut Loaded,
    pins: &Path,
    name: &'static str,
) -> Result<(), DatapathError> {
    let failed = |source| DatapathError::program("attach", name)(source);
    let link = bpf::pinned(&pins.join(xdp::PIN)).map_err(failed)?;
    let program = loaded.xdp(name)?;
    let fd = program.fd().map_err(DatapathError::program("load", name))?;
    bpf::update_link(link.as_fd(), fd.as_fd()).map_err(failed)
}

/// Sends a frame `count` times out by an interface, each time as a program changes it.
pub(super) fn send(
    loaded: &mut Loaded,
    name: &'static str,
    frame: &[u8],
    interface: u32,
    count: u32,
) -> Result<(), DatapathError> {
    /// Frames of one run of the driver, as of NAPI.
    const BATCH: u32 = 64;
    let len = u32::try_from(frame.len()).unwrap_or(0);
    // `struct xdp_md` of linux/bpf.h: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let context = [0, len, 0, interface, 0, 0].map(u32::to_ne_bytes).concat();
    let options = TestRunOptions {
        data_in: Some(frame),
        ctx_in: Some(&context),
        repeat: count,
        attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
        ..TestRunOptions::default()
    };
    let sent = loaded.xdp(name)?.test_run(options);
    sent.map(drop).map_err(DatapathError::program("run", name))
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
