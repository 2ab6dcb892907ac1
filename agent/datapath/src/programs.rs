//! The loaded programs: attached to the node's links and cgroup, or run over a frame.

use std::time::Duration;

use parking_lot::Mutex;

use super::error::DatapathError;
use super::load::{Hook, Loaded, Run, Target};
use super::{Config, measure};

/// The loaded programs of one node.
#[derive(Debug)]
pub struct Programs(Mutex<Loaded>);

impl Programs {
    pub(super) fn new(loaded: Loaded) -> Self {
        Self(Mutex::new(loaded))
    }

    /// Attaches the programs to the uplink and the cgroup in `config`, or updates pinned links.
    pub(super) fn attach(&self, config: &Config) -> Result<(), DatapathError> {
        let target = Target::find(config)?;
        self.0.lock().attach(&config.pins(), config, &target)
    }

    /// Runs the program of a hook over a frame with the real maps (BPF_PROG_TEST_RUN).
    pub fn run(&self, hook: Hook, frame: &[u8]) -> Result<Run, DatapathError> {
        self.0.lock().run(hook, frame)
    }

    /// Mean duration of one test run of a program that is not attached, with the real maps.
    pub fn measure(&self, program: &'static str, runs: u32) -> Result<Duration, DatapathError> {
        measure::time(&mut self.0.lock(), program, runs)
    }
}
