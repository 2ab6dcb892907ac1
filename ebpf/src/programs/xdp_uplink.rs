//! XDP on the uplink: answers for the node's pods on the link. Minimum kernel: 5.9 (XDP links).

use aya_ebpf::bindings::xdp_action::{XDP_PASS, XDP_TX};
use aya_ebpf::helpers::generated::{bpf_redirect, bpf_xdp_adjust_tail};
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use dormouse_ebpf::ndp::{ADVERTISEMENT_LEN, advertisement, solicitation};
use dormouse_ebpf::packet::Bytes;
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::tables;

#[xdp]
fn xdp_uplink(ctx: XdpContext) -> u32 {
    answer(&ctx).unwrap_or(XDP_PASS)
}

/// Turns a solicitation for a pod into its answer, in place, and sends it back.
#[inline(always)]
fn answer(ctx: &XdpContext) -> Option<u32> {
    let asked = solicitation(&Frame(ctx))?;
    let config = tables::config()?;
    if !config.is_local(&asked.target) {
        return None;
    }
    if tables::PODS.get_ptr(&asked.target).is_none() {
        tables::note(Verdict::Solicited);
        return None;
    }
    let frame = advertisement(&asked, config.uplink_mac);
    let len = ctx.data_end() - ctx.data();
    // SAFETY: the helper takes the hook's context.
    if unsafe { bpf_xdp_adjust_tail(ctx.ctx, ADVERTISEMENT_LEN as i32 - len as i32) } != 0 {
        return None;
    }
    write(ctx, &frame)?;
    tables::note(Verdict::Advertised);
    if config.redirects == 0 {
        return Some(XDP_TX);
    }
    // SAFETY: the helper only notes where the frame goes.
    u32::try_from(unsafe { bpf_redirect(config.uplink, 0) }).ok()
}

#[inline(always)]
fn write(ctx: &XdpContext, frame: &[u8; ADVERTISEMENT_LEN]) -> Option<()> {
    let start = ctx.data();
    if start + ADVERTISEMENT_LEN > ctx.data_end() {
        return None;
    }
    // SAFETY: the packet has as many bytes, as was just checked; bytes have no alignment.
    unsafe { (start as *mut [u8; ADVERTISEMENT_LEN]).write(*frame) };
    Some(())
}

/// A frame before the kernel made a packet of it.
struct Frame<'a>(&'a XdpContext);

impl Bytes for Frame<'_> {
    #[inline(always)]
    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let start = self.0.data() + offset;
        if start + N > self.0.data_end() {
            return None;
        }
        // SAFETY: the packet has as many bytes, as was just checked; bytes have no alignment.
        Some(unsafe { (start as *const [u8; N]).read() })
    }
}
