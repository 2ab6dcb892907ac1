//! The screen of the uplink over the node's maps: see [`dormouse_ebpf::screen`]. It is the same for a frame that the driver has just
//! received (XDP) and for a socket buffer.

use dormouse_ebpf::config::Config;
use dormouse_ebpf::packet::{Frame, Read, read};
use dormouse_ebpf::verdict::Verdict;

use super::deny::is_denied;
use super::ndp::is_for_pod;
use super::scratch::Scratch;
use super::tables;

/// What becomes of a frame from outside.
pub(crate) enum Screened {
    /// It is handled further.
    Passes(Read),
    /// It is dropped.
    Drops(Verdict),
    /// It solicits a pod of this node, and is answered.
    Solicits,
}

/// Parses a frame, and screens it.
#[inline(always)]
pub(crate) fn screen<F: Frame>(frame: &F, scratch: &mut Scratch, config: &Config) -> Screened {
    let found = read(frame, &mut scratch.packet);
    let packet = &scratch.packet;
    if is_denied(config, &packet.source) {
        return Screened::Drops(Verdict::DroppedDenied);
    }
    let is_pod = |address: &[u8; 16]| tables::PODS.get_ptr(address).is_some();
    if let Some(verdict) = dormouse_ebpf::screen::screen(found, packet, config, is_pod) {
        return Screened::Drops(verdict);
    }
    if matches!(found, Read::Other) && is_for_pod(frame, scratch, config) {
        return Screened::Solicits;
    }
    Screened::Passes(found)
}
