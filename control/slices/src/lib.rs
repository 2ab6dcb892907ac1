//! EndpointSlices of the Services that select pods: each ready pod's addresses, its node and its zone, as Kubernetes' EndpointSlice
//! controller writes them.
//!
//! Reading order: what counts of a pod ([`pod`]) and of a Service ([`service`]), the endpoints of one Service ([`endpoints`]), the
//! writes that bring its slices there ([`plan`]), what has changed for which Service ([`state`]), all of them pure; and the loop that
//! follows the store and writes ([`run`]).
#![forbid(unsafe_code)]

pub mod endpoints;
pub mod plan;
pub mod pod;
mod run;
pub mod service;
pub mod state;

pub use run::run;
