//! The loaded programs: attached to the node's links and cgroup, or run over a frame.

use std::time::Duration;

use parking_lot::Mutex;

use super::error::DatapathError;
use super::load::{Loaded, Target};
use super::run::{self, Hook, Run};
use super::xdp::{self, Xdp};
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

    /// Attaches the uplink's XDP program, replaces the one of the previous agent, or removes it, as the mode says. That it cannot be attached
    /// is no error: the classifier does its work.
    pub(super) fn attach_xdp(&self, config: &Config) -> Xdp {
        xdp::attach(&mut self.0.lock(), config)
    }

    /// Runs the program of a hook over a frame with the real maps (BPF_PROG_TEST_RUN).
    pub fn run(&self, hook: Hook, frame: &[u8]) -> Result<Run, DatapathError> {
        run::run(&mut self.0.lock(), hook, frame)
    }

    /// Mean duration of one test run of a program that is not attached, with the real maps.
    pub fn measure(&self, program: &'static str, runs: u32) -> Result<Duration, DatapathError> {
        measure::time(&mut self.0.lock(), program, runs)
    }

    /// Puts a program of measurements in the place of the uplink's XDP program, until the data path is opened again.
    pub fn replace_xdp(&self, config: &Config, program: &'static str) -> Result<(), DatapathError> {
        measure::replace_xdp(&mut self.0.lock(), &config.pins(), program)
    }

    /// Sends a frame `count` times out by an interface, as a program of measurements changes it: `measure_send` takes one of 2^20 networks of 64 bits as
    /// its source each time, `measure_flows` makes it a datagram of one of 2^12 flows.
    pub fn send(
        &self,
        program: &'static str,
        frame: &[u8],
        interface: u32,
        count: u32,
    ) -> Result<(), DatapathError> {
        measure::send(&mut self.0.lock(), program, frame, interface, count)
    }
}
