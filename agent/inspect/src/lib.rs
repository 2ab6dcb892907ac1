//! Inspection of a node: its Services, drops and flows, and the path of a packet; one screen each for people, one JSON or
//! YAML document for programs.
//!
//! Inspection changes nothing, and reads the kernel's maps without an agent; only the names of Services need one, from its
//! read-only route ([`services`]). Reading order: output format ([`output`]) and errors ([`error`]), sources ([`services`],
//! [`client`], [`names`]), the wiring of pods ([`kernel`], [`leases`], joined in [`wiring`]; [`pods`], [`addresses`],
//! [`neighbours`]), counters ([`apps`], [`backends`], [`reason`], [`drops`], [`denied`], [`flows`]), and the path of a packet ([`frame`],
//! [`render`], [`packet_path`], [`route`], [`explanation`], [`address`]).

#![forbid(unsafe_code)]

pub mod error;
pub mod output;

pub mod client;
pub mod names;
pub mod services;

pub mod kernel;
pub mod leases;
pub mod wiring;

pub mod addresses;
pub mod neighbours;

pub mod apps;
pub mod backends;
pub mod denied;
pub mod drops;
pub mod flows;
pub mod pods;
pub mod reason;

pub mod address;
pub mod explanation;
pub mod frame;
pub mod packet_path;
pub mod render;
pub mod route;

/// The `apiVersion` of every JSON or YAML document that the commands write.
pub const API_VERSION: &str = "dormouse.dev/v1";

pub use error::{Exit, InspectError};
