//! Tells the agent, once for each sleep, that somebody asks for an app.

use dormouse_ebpf::maps::Event;
use dormouse_ebpf::service::{EventKind, Route, noted, wakes};
use dormouse_ebpf::verdict::Verdict;

use super::{atomic, tables};

/// Raises an event if this is the first packet of this sleep, or the first to a VIP without an entry.
#[inline(always)]
pub(crate) fn wake(vip: u32, route: Route) {
    let Some(touch) = tables::TOUCH.get_ptr_mut(vip) else {
        return;
    };
    let before = tables::read(touch);
    if let Some(kind) = wakes(route, before) {
        raise(vip, route, kind, touch, before);
    }
}

#[inline(always)]
fn raise(vip: u32, route: Route, kind: EventKind, touch: *mut u64, before: u64) {
    let now = noted(route);
    // SAFETY: an aligned word of a map value. Of two first packets on two CPUs, one wins.
    if !unsafe { atomic::replace(touch, before, now) } {
        return;
    }
    let event = Event {
        vip,
        kind: kind as u32,
        at_ns: tables::now_ns(),
    };
    if tables::EVENTS.output::<Event>(event, 0).is_ok() {
        tables::note(if matches!(kind, EventKind::Wake) {
            Verdict::Woke
        } else {
            Verdict::Missed
        });
    } else {
        // Not told: the next packet tries again.
        tables::note(Verdict::EventLost);
        // SAFETY: as above.
        unsafe { atomic::replace(touch, now, before) };
    }
}
