//! Reverse NAT of ICMP errors: an error quotes the translated packet, its sender must get the packet as it was sent.

use aya_ebpf::bindings::BPF_F_PSEUDO_HDR;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::flow::{FORWARDED, FlowKey};
use dormouse_ebpf::packet::{L3, Packet, quoted};
use dormouse_ebpf::verdict::Verdict;

use super::apply_flow::deliver;
use super::env::Env;
use super::fib_forward::fib_forward;
use super::rewrite::{End, IpHeader, NewAddress, NewEnd, difference, put_address};
use super::scratch::Scratch;
use super::skb::frame;
use super::transmit::{NEXT, forward, refused};
use super::{flows, verdicts};

/// Bytes of an ICMP error before what it quotes.
const HEADER: usize = 8;
/// Where its checksum lies.
const CHECKSUM: usize = 2;

/// Translates an error about a packet of a known flow, and sends it to the packet's sender.
#[inline(never)]
pub(crate) fn translate(ctx: &TcContext, scratch: &mut Scratch, env: Env<'_>) -> i32 {
    let v4 = scratch.packet.v4 == 1;
    let at = scratch.packet.l4 as usize + HEADER;
    if !quoted(&frame(ctx), at, v4, &mut scratch.quoted) {
        return NEXT;
    }
    // What Ethernet adds behind the error is not quoted by it, and its checksum does not cover that.
    if scratch.quoted.l4 as usize + HEADER > L3 + scratch.packet.len as usize {
        return NEXT;
    }
    // An error goes to the source of the packet that it quotes (RFC 792, RFC 4443 2.2).
    if scratch.quoted.source != scratch.packet.target {
        return NEXT;
    }
    // The flow of the opposite direction holds the failed packet's ends before its translation.
    scratch.key = FlowKey::of(&scratch.quoted).reversed();
    let Some(flow) = flows::find(&scratch.key) else {
        return fib_forward(ctx, scratch, &scratch.quoted, env);
    };
    // SAFETY: a map value; what changes in it are single words that are not copied for use.
    scratch.flow = unsafe { *flow };
    verdicts::note(Verdict::ErrorTranslated);
    if scratch.flow.is(FORWARDED) {
        return forward(
            ctx,
            &scratch.packet,
            env.config.uplink,
            Some(&scratch.flow.target),
        );
    }
    if change(ctx, scratch, at).is_none() {
        return refused();
    }
    // See `change`.
    if scratch.packet.source != scratch.quoted.target {
        scratch.flow.source = scratch.packet.source;
    }
    deliver(ctx, &scratch.packet, &scratch.flow, env)
}

#[inline(always)]
fn change(ctx: &TcContext, scratch: &Scratch, at: usize) -> Option<()> {
    let (packet, quoted, flow) = (&scratch.packet, &scratch.quoted, &scratch.flow);
    let error = Error {
        ctx,
        packet,
        quoted,
        at,
    };
    error.rewrite_quoted(NewEnd {
        end: End::Source,
        address: &flow.target,
        port: flow.target_port,
    })?;
    error.rewrite_quoted(NewEnd {
        end: End::Target,
        address: &flow.source,
        port: flow.source_port,
    })?;
    error.rewrite(End::Target, &flow.target)?;
    // An error of the backend itself, not of a router, comes from the VIP.
    if packet.source == quoted.target {
        error.rewrite(End::Source, &flow.source)?;
    }
    Some(())
}

/// An ICMP error, and the packet that it quotes.
struct Error<'a> {
    ctx: &'a TcContext,
    packet: &'a Packet,
    quoted: &'a Packet,
    /// The offset of the quoted packet in the frame.
    at: usize,
}

impl Error<'_> {
    /// Translates an end of the quoted packet.
    #[inline(always)]
    fn rewrite_quoted(&self, new: NewEnd<'_>) -> Option<()> {
        let Self {
            ctx,
            packet,
            quoted,
            at,
        } = *self;
        let NewEnd { end, address, port } = new;
        let (old, old_port) = match end {
            End::Source => (&quoted.source, quoted.source_port),
            End::Target => (&quoted.target, quoted.target_port),
        };
        let sum = packet.l4 as usize + CHECKSUM;
        if *old != *address {
            let difference = difference(old, address)?;
            // Within IPv4 the quoted header's own checksum cancels out the change.
            if packet.v4 == 0 {
                ctx.l4_csum_replace(sum, 0, difference, 0).ok()?;
            }
            let header = IpHeader {
                at,
                v4: packet.v4 == 1,
            };
            let new = NewAddress {
                end,
                address,
                difference,
            };
            put_address(ctx, header, new)?;
        }
        if old_port != port {
            let (from, to) = (u64::from(old_port.to_be()), u64::from(port.to_be()));
            ctx.l4_csum_replace(sum, from, to, 2).ok()?;
            let place = quoted.l4 as usize + end.port_at();
            ctx.store(place, &port.to_be_bytes(), 0).ok()?;
        }
        Some(())
    }

    /// Translates an end of the error itself; only ICMPv6's checksum covers it.
    #[inline(always)]
    fn rewrite(&self, end: End, address: &[u8; 16]) -> Option<()> {
        let Self { ctx, packet, .. } = *self;
        let old = match end {
            End::Source => &packet.source,
            End::Target => &packet.target,
        };
        let difference = difference(old, address)?;
        if packet.v4 == 0 {
            let pseudo = u64::from(BPF_F_PSEUDO_HDR);
            let sum = packet.l4 as usize + CHECKSUM;
            ctx.l4_csum_replace(sum, 0, difference, pseudo).ok()?;
        }
        let header = IpHeader {
            at: L3,
            v4: packet.v4 == 1,
        };
        let new = NewAddress {
            end,
            address,
            difference,
        };
        put_address(ctx, header, new)
    }
}
