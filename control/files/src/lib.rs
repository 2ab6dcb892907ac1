//! Files of both programs: written as a whole ([`write_whole`]), and with a state by which their changes are detected ([`Stamp`]).

#![forbid(unsafe_code)]

mod stamp;
mod whole;

pub use stamp::Stamp;
pub use whole::{Durability, write_whole};
