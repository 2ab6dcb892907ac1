//! A frame as the driver has received it: an XDP buffer, also one of several pieces. Minimum kernel: 5.18 (its helpers).
//!
//! Headers are read where they lie, in the buffer's first piece. A helper reads what is behind it, or further inside it than headers without
//! options and extension headers are.

use core::arch::asm;
use core::mem::MaybeUninit;

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_TX};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::helpers::generated::{
    bpf_xdp_adjust_tail, bpf_xdp_get_buff_len, bpf_xdp_load_bytes, bpf_xdp_store_bytes,
};
use aya_ebpf::programs::XdpContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::packet::{Aligned, ETHERTYPE, Frame, L4};
use dormouse_ebpf::verdict::Verdict;

use super::verdicts;

/// The bit of a link-layer address that a group has (IEEE 802).
const GROUP: u8 = 1;

/// A whole frame.
pub(crate) struct Buffer(*mut xdp_md);

/// The frame of a program's run.
#[inline(always)]
pub(crate) fn frame(ctx: &XdpContext) -> Buffer {
    Buffer(ctx.ctx)
}

impl Buffer {
    /// The `N` bytes at `offset`, if they are in the first piece, and no further inside it than [`L4`].
    #[inline(always)]
    fn in_place<const N: usize>(&self, offset: usize) -> Option<Aligned<N>> {
        if offset > L4 {
            return None;
        }
        // SAFETY: fields of the context.
        let (first, end) = unsafe { ((*self.0).data as usize, (*self.0).data_end as usize) };
        let at = one_place(first + offset);
        if at + N > end {
            return None;
        }
        // SAFETY: inside the first piece, as checked.
        Some(Aligned(unsafe { (at as *const [u8; N]).read_unaligned() }))
    }

    /// The `N` bytes at `offset`, wherever they are.
    #[inline(always)]
    fn by_helper<const N: usize>(&self, offset: usize) -> Option<Aligned<N>> {
        let mut bytes = MaybeUninit::<Aligned<N>>::uninit();
        // SAFETY: the helper writes `N` bytes or fails.
        let failed = unsafe {
            bpf_xdp_load_bytes(self.0, offset as u32, bytes.as_mut_ptr().cast(), N as u32)
        };
        // SAFETY: it did not fail; what follows the bytes is padding.
        (failed == 0).then(|| unsafe { bytes.assume_init() })
    }
}

/// Hides from the optimiser how a place in a packet was computed: the verifier knows only that very place, which the check has compared, and
/// not the same one computed again.
#[inline(always)]
fn one_place(mut at: usize) -> usize {
    // SAFETY: one instruction on a register, which keeps its value.
    unsafe { asm!("{at} = {at}", at = inout(reg) at, options(nomem, nostack, pure)) };
    at
}

impl Frame for Buffer {
    #[inline(always)]
    fn length(&self) -> usize {
        // SAFETY: the helper takes the program's context.
        (unsafe { bpf_xdp_get_buff_len(self.0) }) as usize
    }

    /// With a VLAN tag in the frame, the tag's.
    #[inline(always)]
    fn ethertype(&self) -> Option<[u8; 2]> {
        self.load(ETHERTYPE).map(|bytes| bytes.0)
    }

    #[inline(always)]
    fn load<const N: usize>(&self, offset: usize) -> Option<Aligned<N>> {
        self.in_place(offset).or_else(|| self.by_helper(offset))
    }
}

/// Whom a frame is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// This host alone.
    ThisHost,
    /// A group of hosts, or all of the link.
    Group,
    /// Another host.
    Another,
}

/// Whom a frame is for, by its link-layer address, as the kernel will find.
#[inline(always)]
pub(crate) fn receiver(ctx: &XdpContext, config: &Config) -> Receiver {
    match frame(ctx).load::<6>(0) {
        Some(to) if to.0 == config.uplink_mac => Receiver::ThisHost,
        Some(to) if to.0[0] & GROUP != 0 => Receiver::Group,
        _ => Receiver::Another,
    }
}

/// Replaces the frame, and sends it back by the interface that it came by.
#[inline(always)]
pub(crate) fn send_back<const N: usize>(ctx: &XdpContext, answer: &mut [u8; N]) -> Option<u32> {
    let grows = N as i32 - frame(ctx).length() as i32;
    // SAFETY: the helper takes the program's context.
    if unsafe { bpf_xdp_adjust_tail(ctx.ctx, grows) } != 0 {
        return None;
    }
    // SAFETY: the helper reads `N` bytes.
    let failed = unsafe { bpf_xdp_store_bytes(ctx.ctx, 0, answer.as_mut_ptr().cast(), N as u32) };
    (failed == 0).then_some(XDP_TX)
}

/// Drops a packet, and counts it by slot.
#[inline(always)]
pub(crate) fn dropped(verdict: Verdict, slot: u32) -> u32 {
    verdicts::note_drop(verdict, slot);
    XDP_DROP
}
