//! What people ask of a node: what it serves, what it drops, which way a packet goes. One screen each, and one form for
//! programs.
//!
//! Whoever asks changes nothing, and needs no agent for what the kernel's maps say; names live in the agent only, and
//! come from its read-only route ([`services`]). Reading order: how answers are written ([`output`]) and end
//! ([`trouble`]), where they come from ([`services`], [`client`], [`names`]), what pods are wired to ([`kernel`], [`leases`],
//! joined in [`wiring`]; [`pods`], [`addresses`], [`neighbours`]), what is counted ([`apps`], [`backends`], [`reason`], [`drops`],
//! [`flows`]), and why a packet goes its way ([`frame`], [`story`], [`journey`], [`route`], [`explanation`], [`address`]).

#![forbid(unsafe_code)]

pub mod output;
pub mod trouble;

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
pub mod drops;
pub mod flows;
pub mod pods;
pub mod reason;

pub mod address;
pub mod explanation;
pub mod frame;
pub mod journey;
pub mod route;
pub mod story;

/// The version of everything that is written for programs.
pub const API_VERSION: &str = "dormouse.dev/v1";

pub use trouble::{Exit, Trouble};
