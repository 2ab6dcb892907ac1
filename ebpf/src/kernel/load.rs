//! Load of backends, counted where this node decides: one atomic addition for each begin and each end of a connection.

use dormouse_ebpf::decide::Tables as _;
use dormouse_ebpf::load::{Load, Tally};

use super::atomic;
use super::tables::{self, Kernel};

/// Counts a new flow to the backend.
#[inline(always)]
pub(crate) fn flow_begun(backend: u32) {
    if let Some(flows) = flows(backend) {
        begun(flows);
    }
}

/// Counts the end of a flow to the backend.
#[inline(always)]
pub(crate) fn flow_ended(backend: u32, generation: u32) {
    if let Some(flows) = flows(backend) {
        ended(flows, backend, generation);
    }
}

/// Counts a socket that was connected to the backend.
#[inline(always)]
pub(crate) fn socket_begun(backend: u32) {
    if let Some(sockets) = sockets(backend) {
        begun(sockets);
    }
}

/// Counts the end of a socket's connection to the backend.
#[inline(always)]
pub(crate) fn socket_ended(backend: u32, generation: u32) {
    if let Some(sockets) = sockets(backend) {
        ended(sockets, backend, generation);
    }
}

#[inline(always)]
fn flows(backend: u32) -> Option<*mut Tally> {
    let load: *mut Load = tables::LOADS.get_ptr_mut(backend)?;
    // SAFETY: a field of a map value, which lives as long as the program runs.
    Some(unsafe { &raw mut (*load).flows })
}

#[inline(always)]
fn sockets(backend: u32) -> Option<*mut Tally> {
    let load: *mut Load = tables::LOADS.get_ptr_mut(backend)?;
    // SAFETY: as above.
    Some(unsafe { &raw mut (*load).sockets })
}

#[inline(always)]
fn begun(tally: *mut Tally) {
    // SAFETY: a field of a map value, which lives as long as the program runs.
    unsafe { atomic::increment(&raw mut (*tally).begun) }
}

/// Counts an end only in the generation that it began in: the id may belong to another backend by now.
#[inline(always)]
fn ended(tally: *mut Tally, backend: u32, generation: u32) {
    let now = Kernel.backend(backend);
    if now.is_some_and(|now| u32::from(now.generation) == generation) {
        // SAFETY: a field of a map value, which lives as long as the program runs.
        unsafe { atomic::increment(&raw mut (*tally).ended) }
    }
}
