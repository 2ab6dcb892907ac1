//! The loaded programs: attached to the node's links and cgroup, and run for one frame.

use std::time::Duration;

use parking_lot::Mutex;

use super::error::DatapathError;
use super::load::{Hook, Loaded, Run, Target};
use super::{Config, measure};

/// The programs of one node.
#[derive(Debug)]
pub struct Programs(Mutex<Loaded>);

impl Programs {
    pub(super) fn new(loaded: Loaded) -> Self {
        Self(Mutex::new(loaded))
    }

    /// Attaches them where `config` says, or leaves them where they are.
    pub(super) fn attach(&self, config: &Config) -> Result<(), DatapathError> {
        let target = Target::find(config)?;
        self.0.lock().attach(&config.pins(), config, &target)
    }

    /// Runs the program of a hook over a frame, over the real maps: what would become of it here and now.
    pub fn run(&self, hook: Hook, frame: &[u8]) -> Result<Run, DatapathError> {
        self.0.lock().run(hook, frame)
    }

    /// The mean time of one run of a program that is attached nowhere, over the maps as they are.
    pub fn measure(&self, program: &'static str, runs: u32) -> Result<Duration, DatapathError> {
        measure::time(&mut self.0.lock(), program, runs)
    }
}
