//! Wake events: the first packet to a sleeping app raises one, once for each sleep.

use dormouse_ebpf::maps::Event;
use dormouse_ebpf::service::{EventKind, Route, Target, noted, wakes};
use dormouse_ebpf::verdict::Verdict;

use super::{atomic, tables};

/// Raises an event if this is the first packet of this sleep to the app's port, or the first to a VIP that the node does not
/// follow.
#[inline(always)]
pub(crate) fn wake(vip: u32, route: Route, target: Target) {
    let Some(touch) = tables::TOUCH.get_ptr_mut(vip) else {
        return;
    };
    let before = tables::read(touch);
    let Some(kind) = wakes(route, before, target) else {
        return;
    };
    let now = noted(route);
    // SAFETY: an aligned word of a map value. Of two first packets on two CPUs, one wins.
    if !unsafe { atomic::replace(touch, before, now) } {
        return;
    }
    if raise(vip, kind, target) {
        return;
    }
    // The ring is full: the next packet tries again.
    tables::note(Verdict::EventLost);
    // SAFETY: as above.
    unsafe { atomic::replace(touch, now, before) };
}

/// Writes an event to the ring buffer. False if that is full.
#[inline(always)]
fn raise(vip: u32, kind: EventKind, target: Target) -> bool {
    let event = Event {
        vip,
        kind: kind as u8,
        protocol: target.protocol,
        port: target.port,
        at_ns: tables::now_ns(),
    };
    let raised = tables::EVENTS.output::<Event>(event, 0).is_ok();
    if raised {
        tables::note(match kind {
            EventKind::Wake => Verdict::Woke,
            EventKind::Miss => Verdict::Missed,
        });
    }
    raised
}
