//! A socket buffer, read as an Ethernet frame.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::generated::bpf_skb_load_bytes;
use aya_ebpf::programs::{SkBuffContext, TcContext};
use dormouse_ebpf::packet::{Aligned, ETHERTYPE_VLAN, Frame, L3};

/// The bits of a VLAN tag that hold the VLAN's number (IEEE 802.1Q 9.6).
const VLAN_ID: u32 = 0xfff;
/// The packet type of a frame to this link's own link-layer address (`PACKET_HOST` of if_packet.h).
pub(crate) const TO_THIS_LINK: u32 = 0;
/// The packet type of a frame to another link-layer address (`PACKET_OTHERHOST`).
pub(crate) const TO_ANOTHER: u32 = 3;

/// A packet whose first `HIDDEN` bytes are not in the buffer.
pub(crate) struct Skb<const HIDDEN: usize>(*mut __sk_buff);

/// Whether the frame has a VLAN tag, which the kernel has removed: it belongs to the VLAN's own interface. VLAN 0 is only a
/// priority.
#[inline(always)]
pub(crate) fn is_of_vlan(skb: *mut __sk_buff) -> bool {
    // SAFETY: a field of the context.
    unsafe { (*skb).vlan_tci & VLAN_ID != 0 }
}

/// Whether a frame is for another host: a link in promiscuous mode, as while a capture runs, receives these too. The kernel drops them.
#[inline(always)]
pub(crate) fn is_for_another_host(ctx: &TcContext) -> bool {
    // SAFETY: a field of the context.
    unsafe { (*ctx.skb.skb).pkt_type == TO_ANOTHER }
}

/// Whether a frame is for this host alone. A packet in a frame to a group is not forwarded (RFC 1812 5.3.4).
#[inline(always)]
pub(crate) fn is_for_this_host(ctx: &TcContext) -> bool {
    // SAFETY: a field of the context.
    unsafe { (*ctx.skb.skb).pkt_type == TO_THIS_LINK }
}

/// A whole frame, as at tcx hooks.
#[inline(always)]
pub(crate) fn frame(ctx: &TcContext) -> Skb<0> {
    Skb(ctx.skb.skb)
}

/// A packet that a socket sends, before its Ethernet header is added.
#[inline(always)]
pub(crate) fn headless(ctx: &SkBuffContext) -> Skb<L3> {
    Skb(ctx.skb.skb)
}

impl<const HIDDEN: usize> Frame for Skb<HIDDEN> {
    #[inline(always)]
    fn length(&self) -> usize {
        // SAFETY: a field of the context.
        HIDDEN + unsafe { (*self.0).len } as usize
    }

    #[inline(always)]
    fn ethertype(&self) -> Option<[u8; 2]> {
        if is_of_vlan(self.0) {
            return Some(ETHERTYPE_VLAN);
        }
        // SAFETY: a field of the context; big-endian in its low half.
        Some((unsafe { (*self.0).protocol } as u16).to_ne_bytes())
    }

    #[inline(always)]
    fn load<const N: usize>(&self, offset: usize) -> Option<Aligned<N>> {
        let mut bytes = MaybeUninit::<Aligned<N>>::uninit();
        let from = offset.checked_sub(HIDDEN)? as u32;
        // SAFETY: the helper writes `N` bytes or fails.
        let failed =
            unsafe { bpf_skb_load_bytes(self.0.cast(), from, bytes.as_mut_ptr().cast(), N as u32) };
        // SAFETY: it did not fail; what follows the bytes is padding.
        (failed == 0).then(|| unsafe { bytes.assume_init() })
    }
}
