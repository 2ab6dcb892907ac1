//! Where a new connection to a VIP goes: the one decision that all hooks share.

use dormouse_ebpf::maps::{Config, Event};
use dormouse_ebpf::pick::{RENDEZVOUS_MAX, below, draw, score};
use dormouse_ebpf::service::{Decision, EventKind, Route, Set, decide, noted, wakes};
use dormouse_ebpf::verdict::Verdict;

use super::{atomic, tables};

/// A place to go to.
pub(crate) struct Choice {
    pub(crate) address: [u8; 16],
    pub(crate) port: u16,
    /// The next hop, if this is an activator.
    pub(crate) via: Option<[u8; 16]>,
}

/// Who asks for what.
pub(crate) struct Asked {
    /// The VIP's index.
    pub(crate) vip: u32,
    /// The port asked for.
    pub(crate) port: u16,
    /// A conversation begins: what is left of an earlier one wakes nobody.
    pub(crate) begins: bool,
    /// How to choose.
    pub(crate) pick: Pick,
}

/// How to pick among equals.
#[derive(Clone, Copy)]
pub(crate) enum Pick {
    /// By these random bits: for pods, whose connections need no other node's consent.
    Random(u64),
    /// By the flow's hash, so that every node picks the same.
    Rendezvous(u64),
}

/// Chooses for a connection to a VIP, and wakes it if it sleeps.
#[inline(always)]
pub(crate) fn choose(asked: &Asked, config: &Config) -> Option<Choice> {
    let Asked {
        vip,
        port,
        begins,
        pick,
    } = *asked;
    let (Pick::Random(bits) | Pick::Rendezvous(bits)) = pick;
    let service = tables::SERVICES.get_ptr(vip)?.cast::<u64>();
    let route = Route::unpack(tables::read(service));
    if route.present && route.port != 0 && route.port != port {
        tables::note(Verdict::OtherPort);
        return activator(vip, port, config);
    }
    if begins {
        wake(vip, route);
    }
    let verdict = match decide(
        route,
        tables::lease_until_ns(),
        tables::now_ns(),
        draw(bits),
    ) {
        Decision::Serve => {
            // SAFETY: an entry has two words; this is the second.
            let set = Set::unpack(tables::read(unsafe { service.add(1) }));
            match pick_backend(set, pick) {
                Some((address, port)) => {
                    return Some(Choice {
                        address,
                        port,
                        via: None,
                    });
                }
                None => Verdict::NoBackend,
            }
        }
        Decision::Proxy => Verdict::Proxied,
        Decision::LeaseOver => Verdict::LeaseOver,
        Decision::Share => Verdict::Shared,
    };
    tables::note(verdict);
    activator(vip, port, config)
}

/// The activator that stands for the VIP.
#[inline(always)]
pub(crate) fn activator(vip: u32, port: u16, config: &Config) -> Option<Choice> {
    let Some(activator) = config.activator(vip) else {
        tables::note(Verdict::DroppedNoActivator);
        return None;
    };
    Some(Choice {
        address: activator.address_for(vip),
        port,
        via: Some(activator.via),
    })
}

#[inline(always)]
fn pick_backend(set: Set, pick: Pick) -> Option<([u8; 16], u16)> {
    if set.count == 0 {
        return None;
    }
    let id = match pick {
        Pick::Random(bits) => {
            tables::set_id(set.offset + below(bits as u32, u32::from(set.count)))?
        }
        Pick::Rendezvous(flow) => {
            let id = rendezvous(u64::from(set.offset), u64::from(set.count), flow);
            u32::try_from(id).ok()?
        }
    };
    tables::backend(id)
}

/// The id that the flow likes best, `u64::MAX` if none can be read. A function of scalars, verified by itself.
#[inline(never)]
fn rendezvous(offset: u64, count: u64, flow: u64) -> u64 {
    let count = count as u32;
    let first = if count > RENDEZVOUS_MAX {
        below(flow as u32, count)
    } else {
        0
    };
    let (mut best, mut best_score) = (u64::MAX, 0);
    let mut step = 0;
    while step < RENDEZVOUS_MAX {
        if step >= count {
            break;
        }
        let place = first + step;
        let place = if place >= count { place - count } else { place };
        let Some(id) = tables::set_id(offset as u32 + place) else {
            break;
        };
        let Some((address, port)) = tables::backend(id) else {
            break;
        };
        let score = score(flow, &address, port);
        if score >= best_score {
            (best, best_score) = (u64::from(id), score);
        }
        step += 1;
    }
    best
}

/// Raises an event if this is the first packet of this sleep, or the first to a VIP without an entry.
#[inline(always)]
fn wake(vip: u32, route: Route) {
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
