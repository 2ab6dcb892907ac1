//! The log of packets that a filter selects, for `dormouse-agent run --log-packets`. Only the programs in
//! [`programs::logged`](crate::programs::logged) use it, which are loaded in the place of the others when packets are logged.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, PerCpuArray};
use aya_log_ebpf::info;
use dormouse_ebpf::packet::{Frame, Packet, read};
use dormouse_ebpf::packet_filter::PacketFilter;
use dormouse_ebpf::packet_log::{BUDGET, Facts, TARGET};
use dormouse_ebpf::verdict::VERDICTS_LEN;

use super::budget::take;
use super::scratch::SCRATCH_USERS;
use super::{atomic, clock, tables, verdicts};

/// The filter, written by the agent before it attaches the programs.
#[map(name = "log_filter")]
static FILTER: Array<PacketFilter> = Array::with_max_entries(1, 0);
/// The token bucket of lines, and the number of packets that got none since the last line.
#[map(name = "log_budget")]
static LIMIT: Array<[u64; 2]> = Array::with_max_entries(1, 0);
#[map(name = "log_record")]
static RECORDS: PerCpuArray<Record> = PerCpuArray::with_max_entries(SCRATCH_USERS, 0);

/// A packet that is logged, before and after a program has handled it.
#[repr(C)]
pub(crate) struct Record {
    before: Packet,
    after: Packet,
    /// The counters of verdicts on this CPU, before.
    counts: [u64; VERDICTS_LEN as usize],
    skipped: u64,
    action: i8,
    program: u8,
}

/// Begins the record of a packet, if the filter selects it and there is a token for its line. `user`: of the scratch memory, as the program.
#[inline(always)]
pub(crate) fn begin<F: Frame>(frame: &F, user: u32) -> Option<&'static mut Record> {
    // SAFETY: this CPU's own value, and its users run once at a time on a CPU.
    let record = unsafe { &mut *RECORDS.get_ptr_mut(user)? };
    read(frame, &mut record.before);
    let selected = FILTER.get(0)?.matches(&record.before);
    (selected && admits(record)).then_some(record)
}

/// Ends the record, if there is one, and writes the line. `program`: its number in the log, `action`: its return code.
#[inline(always)]
pub(crate) fn end<C: EbpfContext, F: Frame>(
    ctx: &C,
    frame: &F,
    record: Option<&mut Record>,
    (program, action): (u8, i32),
) {
    if let Some(record) = record {
        read(frame, &mut record.after);
        record.program = program;
        record.action = action as i8;
        write(ctx, record);
    }
}

/// Takes a token; without one the packet is counted, for the next line.
#[inline(never)]
fn admits(record: &mut Record) -> bool {
    let Some(limit) = LIMIT.get_ptr_mut(0) else {
        return false;
    };
    // SAFETY: words of one map value, which lives as long as the program runs.
    let (bucket, skipped) = unsafe { (&raw mut (*limit)[0], &raw mut (*limit)[1]) };
    if !take(bucket, BUDGET, clock::now_ns()) {
        tables::add(skipped, 1);
        return false;
    }
    // SAFETY: an aligned word of a map value, which lives as long as the program runs.
    record.skipped = unsafe { atomic::swap(skipped, 0) };
    for (number, count) in (0..).zip(&mut record.counts) {
        *count = verdicts::counted(number);
    }
    true
}

/// Writes the line: see [`dormouse_ebpf::packet_log::WORDS`].
#[inline(never)]
fn write<C: EbpfContext>(ctx: &C, record: &Record) {
    let mut counted = 0_u64;
    for (number, count) in (0..).zip(&record.counts) {
        if verdicts::counted(number) != *count {
            counted |= 1 << number;
        }
    }
    let Record {
        before,
        after,
        skipped,
        program,
        action,
        ..
    } = record;
    let facts = Facts {
        program: *program,
        action: *action,
        protocol: before.protocol,
        flags: before.flags,
        len: before.len,
    };
    info!(
        ctx,
        target: TARGET,
        "{} {} {} {:i} {} {:i} {} {:i} {} {:i} {}",
        facts.pack(),
        counted,
        *skipped,
        before.source,
        before.source_port,
        before.target,
        before.target_port,
        after.source,
        after.source_port,
        after.target,
        after.target_port
    );
}
