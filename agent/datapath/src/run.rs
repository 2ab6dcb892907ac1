//! Runs of the loaded programs over frames (BPF_PROG_TEST_RUN), with the real maps.

use aya::programs::{Program, TestRun, TestRunOptions};

use super::error::DatapathError;
use super::load::{Loaded, XDP_PROGRAM};

/// Extra room for a program that enlarges the frame in a test run, in bytes.
pub(super) const RUN_ROOM: usize = 256;
/// The link-layer address of the loopback device, on which programs run over frames.
const LOOPBACK_MAC: [u8; 6] = [0; 6];
/// The bit of a link-layer address that a group has (IEEE 802).
const GROUP: u8 = 1;

/// A hook whose program can be run over a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// The uplink's driver (XDP). Its program has verdicts of its own: XDP_PASS, XDP_DROP, XDP_TX.
    UplinkXdp,
    /// Ingress of the uplink.
    UplinkIn,
    /// Egress of the uplink.
    UplinkOut,
    /// Ingress of a pod's host side: packets that the pod sends.
    PodIn,
    /// Egress of a pod's host side: packets that it receives.
    PodOut,
    /// Egress of the cgroup's sockets. Its program has verdicts of its own: 1 allows the packet, 0 drops it.
    CgroupOut,
}

impl Hook {
    /// The name of the hook's program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::UplinkXdp => XDP_PROGRAM,
            Self::UplinkIn => "tcx_uplink_in",
            Self::UplinkOut => "tcx_uplink_out",
            Self::PodIn => "tcx_pod_in",
            Self::PodOut => "tcx_pod_out",
            Self::CgroupOut => "cg_egress",
        }
    }
}

/// The result of a test run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The program's return code (TC_ACT_*).
    pub verdict: u32,
    /// The frame after the run.
    pub frame: Vec<u8>,
}

/// Runs a hook's program over a frame (BPF_PROG_TEST_RUN). At the uplink, the frame is one for this host, whatever its
/// link-layer address.
pub(super) fn run(loaded: &mut Loaded, hook: Hook, frame: &[u8]) -> Result<Run, DatapathError> {
    let name = hook.program();
    if hook == Hook::UplinkXdp {
        loaded.xdp(name)?;
    }
    let mut room = vec![0; frame.len() + RUN_ROOM];
    let arriving = for_loopback(hook, frame);
    let options = TestRunOptions {
        data_in: Some(arriving.as_deref().unwrap_or(frame)),
        data_out: Some(&mut room),
        ..TestRunOptions::default()
    };
    let result = match loaded.program(name)? {
        Program::SchedClassifier(program) => program.test_run(options),
        Program::CgroupSkb(program) => program.test_run(options),
        Program::Xdp(program) => program.test_run(options),
        _ => return Err(DatapathError::Absent { name }),
    }
    .map_err(DatapathError::program("run", name))?;
    room.truncate(result.data_size_out as usize);
    if arriving.is_some() {
        // The program has not changed it, or has answered: then it is the source. A frame's own source may be the same.
        let mut both = room.chunks_exact_mut(LOOPBACK_MAC.len()).take(2);
        if let Some(address) = both.find(|address| **address == LOOPBACK_MAC) {
            address.copy_from_slice(&frame[..LOOPBACK_MAC.len()]);
        }
    }
    Ok(Run {
        verdict: result.return_value,
        frame: room,
    })
}

/// A frame that arrives at the uplink with the link-layer address of the device of a run: programs leave frames for other hosts alone.
fn for_loopback(hook: Hook, frame: &[u8]) -> Option<Vec<u8>> {
    let is_unicast = frame.first().is_some_and(|first| first & GROUP == 0);
    if hook != Hook::UplinkIn || !is_unicast || frame.len() < LOOPBACK_MAC.len() {
        return None;
    }
    Some([&LOOPBACK_MAC, &frame[LOOPBACK_MAC.len()..]].concat())
}
