//! The parameters of a lookup in the host's routes (bpf_fib_lookup), and the next hop that it found.

use core::mem::MaybeUninit;

pub(super) use aya_ebpf::bindings::bpf_fib_lookup as Route;
use dormouse_ebpf::next_hop::RouteHop;
use dormouse_ebpf::packet::v4_of;

use super::rewrite::{single, words};
use super::transmit::{AF_INET, AF_INET6};
use super::words::{Words, zero};

/// Parameters for a packet with these ends, of IPv4 or IPv6, at this interface.
#[inline(always)]
pub(super) fn lookup<'a>(
    room: &'a mut MaybeUninit<Words<Route>>,
    v4: bool,
    (source, target): (&[u8; 16], &[u8; 16]),
    interface: u32,
) -> &'a mut Route {
    // SAFETY: all zero is a valid value of this plain struct.
    let route = unsafe { zero(room) };
    route.ifindex = interface;
    if v4 {
        route.family = AF_INET as u8;
        route.__bindgen_anon_3.ipv4_src = u32::from_ne_bytes(v4_of(source));
        route.__bindgen_anon_4.ipv4_dst = u32::from_ne_bytes(v4_of(target));
    } else {
        route.family = AF_INET6 as u8;
        route.__bindgen_anon_3.ipv6_src = words(source);
        route.__bindgen_anon_4.ipv6_dst = words(target);
    }
    route
}

/// The next hop of a route that was found.
#[inline(always)]
pub(super) fn hop(route: &Route) -> RouteHop {
    let v4 = u32::from(route.family) == AF_INET;
    // SAFETY: the helper wrote a next hop of the family that it returned; that of IPv4 is the first word.
    let address = unsafe { route.__bindgen_anon_4.ipv6_dst.map(single) };
    RouteHop {
        address,
        interface: route.ifindex,
        v4: v4.into(),
    }
}
