//! Command-line output: the exit codes, error messages, `-o` formats and tables of `dormouse` and `dormouse-agent`.
#![forbid(unsafe_code)]

mod drops;
mod error;
mod exit;
mod format;
pub mod runbooks;
mod screen;
mod table;

pub use drops::{REASONS, Reason};
pub use error::{CommandError, error_chain, root_cause};
pub use exit::Exit;
pub use format::{ListFormat, OutputFormat, write_value};
pub use screen::{screen_width, wrap};
pub use table::Columns;
