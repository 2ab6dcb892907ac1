//! Wake events: the first packet to a sleeping app raises one, once for each sleep.

use dormouse_ebpf::maps::{Event, NO_SLOT};
use dormouse_ebpf::service::{EventKind, Route, Target, noted, wakes};
use dormouse_ebpf::verdict::Verdict;
use dormouse_ebpf::wake_limit::WakeSource;

use super::{atomic, clock, tables, verdicts, wake_limit};

/// Raises an event if this is the first packet of this sleep to the app's port, or the first to a VIP that the node does not
/// follow. False, and no event, if `source`, whose address is `address` as far as it is known, has used up its wakes.
#[inline(always)]
pub(crate) fn wake(
    (vip, route): (u32, Route),
    target: Target,
    address: &[u8; 16],
    source: impl FnOnce() -> WakeSource,
) -> bool {
    let Some(touch) = tables::TOUCH.get_ptr_mut(vip) else {
        return true;
    };
    let before = tables::read(touch);
    let Some(kind) = wakes(route, before, target) else {
        return true;
    };
    if tables::wake_limit().is_some() {
        let WakeSource { kind, id } = source();
        if !wake_limit::admits(address, kind, id) {
            return false;
        }
    }
    let now = noted(route);
    // SAFETY: an aligned word of a map value. Of two first packets on two CPUs, one wins.
    if !unsafe { atomic::replace(touch, before, now) } {
        return true;
    }
    if raise(vip, kind, target) {
        return true;
    }
    // The ring is full: the next packet tries again.
    verdicts::note(Verdict::EventLost);
    // SAFETY: as above.
    unsafe { atomic::replace(touch, now, before) };
    true
}

/// The slot that a packet beyond the limit is counted for. Those to VIPs without an entry are counted together: a scan would evict
/// all other counters.
#[inline(always)]
pub(crate) fn counted_slot(vip: u32, route: Route) -> u32 {
    if route.present { vip } else { NO_SLOT }
}

/// Writes an event to the ring buffer. False if that is full.
#[inline(always)]
fn raise(vip: u32, kind: EventKind, target: Target) -> bool {
    let event = Event {
        vip,
        kind: kind as u8,
        protocol: target.protocol,
        port: target.port,
        at_ns: clock::now_ns(),
    };
    let raised = tables::EVENTS.output::<Event>(event, 0).is_ok();
    if raised {
        verdicts::note(match kind {
            EventKind::Wake => Verdict::Woke,
            EventKind::Miss => Verdict::Missed,
        });
    }
    raised
}
