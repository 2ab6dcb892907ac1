//! Runs apps: wakes them, gives them the pods that their load asks for, takes the activator out of the path and puts it
//! back, and lets them sleep.
//!
//! Pure: one app ([`slot`]) and what is to be done for it ([`plan`]), all apps and what each event means for them
//! ([`apps`]). Thin: the loop ([`controller`]) and what carries actions out ([`actuator`]). Cost follows change: a
//! sleeping app has no timer, and a tick touches awake apps only.
#![forbid(unsafe_code)]

pub mod action;
pub mod event;

mod settings;

mod backoff;

mod pod;

mod nodes;

mod member;

mod slot;

mod plan;

mod wake;

pub mod apps;

mod explain;

mod metrics;

pub mod epoch;

mod actuator;

mod controller;

pub use apps::Config;
pub use controller::{Handle, Parts, start};
pub use settings::TICK;
