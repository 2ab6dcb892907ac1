//! ICMP errors name the packet that failed as the network saw it: its sender must see it as it was sent.

use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::flow::{FlowKey, ONWARD};
use dormouse_ebpf::packet::{Packet, quoted};
use dormouse_ebpf::verdict::Verdict;

use super::follow::deliver;
use super::nat::Way;
use super::rewrite::{End, difference, put_address};
use super::send::{NEXT, refused, send_on};
use super::shortcut::shorten;
use super::skb::frame;
use super::tables;
use super::tables::Scratch;

/// Bytes of an ICMP error before what it quotes.
const HEADER: usize = 8;
/// Where its checksum lies.
const CHECKSUM: usize = 2;

/// Leads an error about a packet of a known flow to the packet's sender.
#[inline(never)]
pub(crate) fn translate(ctx: &TcContext, scratch: &mut Scratch, config: &Config, way: Way) -> i32 {
    let v4 = scratch.packet.v4 == 1;
    let at = scratch.packet.l4 as usize + HEADER;
    if !quoted(&frame(ctx), at, v4, &mut scratch.quoted) {
        return NEXT;
    }
    // The flow that runs against the failed packet says what that packet was before it was changed.
    scratch.key = FlowKey::of(&scratch.quoted).reversed();
    let Some(flow) = tables::flow(&scratch.key) else {
        return if scratch.quoted.source == scratch.packet.target {
            shorten(ctx, scratch, &scratch.quoted, config, way)
        } else {
            NEXT
        };
    };
    // SAFETY: a map value; what changes in it are single words that are not copied for use.
    scratch.flow = unsafe { *flow };
    tables::note(Verdict::ErrorTranslated);
    if scratch.flow.is(ONWARD) {
        return send_on(
            ctx,
            &scratch.packet,
            config.uplink,
            Some(&scratch.flow.target),
        );
    }
    if change(ctx, scratch, at).is_none() {
        return refused();
    }
    deliver(ctx, &scratch.packet, &scratch.flow.target, config, way)
}

#[inline(always)]
fn change(ctx: &TcContext, scratch: &Scratch, at: usize) -> Option<()> {
    let (packet, quoted, flow) = (&scratch.packet, &scratch.quoted, &scratch.flow);
    inner(
        ctx,
        packet,
        quoted,
        at,
        End::Source,
        (&flow.target, flow.target_port),
    )?;
    inner(
        ctx,
        packet,
        quoted,
        at,
        End::Target,
        (&flow.source, flow.source_port),
    )?;
    outer(ctx, packet, End::Target, &flow.target)?;
    // Who answers for the failed packet itself, not a router on its way, has the name that its sender knows.
    if packet.source == quoted.target {
        outer(ctx, packet, End::Source, &flow.source)?;
    }
    Some(())
}

/// Changes an end of the quoted packet.
#[inline(always)]
fn inner(
    ctx: &TcContext,
    packet: &Packet,
    quoted: &Packet,
    at: usize,
    end: End,
    (address, port): (&[u8; 16], u16),
) -> Option<()> {
    let (old, old_port) = match end {
        End::Source => (&quoted.source, quoted.source_port),
        End::Target => (&quoted.target, quoted.target_port),
    };
    let sum = packet.l4 as usize + CHECKSUM;
    if *old != *address {
        let difference = difference(old, address)?;
        // Within IPv4 the quoted header's own checksum makes up for the change.
        if packet.v4 == 0 {
            ctx.l4_csum_replace(sum, 0, difference, 0).ok()?;
        }
        put_address(ctx, at, packet.v4 == 1, end, address, difference)?;
    }
    if old_port != port {
        let (from, to) = (u64::from(old_port.to_be()), u64::from(port.to_be()));
        ctx.l4_csum_replace(sum, from, to, 2).ok()?;
        let place = quoted.l4 as usize + end.port_at();
        ctx.store(place, &port.to_be_bytes(), 0).ok()?;
    }
    Some(())
}

/// Changes an end of the error itself; only ICMPv6's checksum covers it.
#[inline(always)]
fn outer(ctx: &TcContext, packet: &Packet, end: End, address: &[u8; 16]) -> Option<()> {
    let old = match end {
        End::Source => &packet.source,
        End::Target => &packet.target,
    };
    let difference = difference(old, address)?;
    if packet.v4 == 0 {
        let pseudo = u64::from(aya_ebpf::bindings::BPF_F_PSEUDO_HDR);
        let sum = packet.l4 as usize + CHECKSUM;
        ctx.l4_csum_replace(sum, 0, difference, pseudo).ok()?;
    }
    put_address(
        ctx,
        dormouse_ebpf::packet::L3,
        packet.v4 == 1,
        end,
        address,
        difference,
    )
}
