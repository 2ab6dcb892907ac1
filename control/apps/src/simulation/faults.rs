//! Faults and changes of apps, at random.

use std::time::Duration;

use super::world::{PORT, World, app_name, key, spec};
use super::{APPS, NODES, TICK, Without, log};

/// Longest fault, milliseconds.
const PAUSE_MS_MAX: u64 = 4_000;

/// Time between two looks whether anything still happens.
const STILL_TICKS: u32 = 50;

impl World {
    /// Runs `ticks` with all faults. Fails at the first violation.
    pub(super) fn run(&mut self, ticks: u32) -> Result<(), String> {
        for _ in 0..ticks {
            self.change_apps();
            self.change_load();
            self.disturb_control();
            self.disturb_activator();
            for index in 0..NODES {
                self.disturb_node(index);
            }
            self.tick()?;
        }
        Ok(())
    }

    /// Runs `ticks` with load and without faults.
    pub(super) fn run_calmly(&mut self, ticks: u32) -> Result<(), String> {
        self.calls.calm = true;
        for control in &mut self.controls {
            control.lag = Duration::ZERO;
        }
        for _ in 0..ticks {
            self.change_load();
            self.tick()?;
        }
        Ok(())
    }

    /// Runs `ticks` without faults and without load.
    pub(super) fn run_still(&mut self, ticks: u32) -> Result<(), String> {
        self.busy.clear();
        self.calls.calm = true;
        (0..ticks).try_for_each(|_| self.tick())
    }

    /// Runs without faults and without load until nothing happens any more; at most `ticks`.
    pub(super) fn run_until_quiet(&mut self, ticks: u32) -> Result<(), String> {
        for _ in 0..ticks / STILL_TICKS {
            self.run_still(STILL_TICKS)?;
            if self.check_quiet().is_ok() {
                return Ok(());
            }
        }
        self.check_quiet()
    }

    /// A client on each node sends a request to a VIP, so that each node follows it.
    pub(super) fn send_to_all(&mut self, vip: u32) -> Result<(), String> {
        for index in 0..NODES {
            self.request(index, vip, PORT, TICK);
        }
        self.run_still(50)
    }

    fn any_vip(&mut self) -> u32 {
        u32::try_from(self.random.below(APPS.into())).unwrap() + 1
    }

    /// A fault lasts until then.
    fn disturbs(&mut self, pause: Duration) -> dormouse_fleet::Boottime {
        let until = self.now + pause;
        self.calm_since = self.calm_since.max(until);
        until
    }

    fn change_apps(&mut self) {
        let vip = self.any_vip();
        let now = self.now;
        if !self.random.once_in(250) {
            return;
        }
        if !self.store.apps.contains_key(&key(vip)) || self.random.once_in(2) {
            let min = u32::from(self.random.once_in(4));
            let release = self.random.below(2);
            self.log(|| format!("VIP {vip}: configured, at least {min} pods, release {release}"));
            self.store
                .configure(now, &app_name(vip), spec(vip, min, release));
        } else {
            self.log(|| format!("VIP {vip}: deleted"));
            self.store.remove_app(now, &key(vip));
        }
    }

    fn change_load(&mut self) {
        let vip = self.any_vip();
        if self.random.once_in(40) {
            let until = self.now + self.random.period(3_000);
            self.busy.insert(vip, until);
        }
    }

    fn disturb_control(&mut self) {
        let pause = self.random.period(PAUSE_MS_MAX);
        if self.random.once_in(400) {
            let both = self.random.once_in(2);
            self.kill_control_for(pause, both);
        }
        if self.random.once_in(600) && self.controls.len() == 1 {
            self.disturbs(pause);
            if self.random.once_in(2) {
                self.cut_store(pause);
            }
            self.start_control();
        }
        if self.random.once_in(600) {
            self.cut_store(pause);
        }
        if self.random.once_in(100) {
            let lag = self.random.period(300);
            for control in &mut self.controls {
                control.lag = lag;
            }
            self.disturbs(lag);
        }
    }

    /// All controls are killed, perhaps with the activator; one starts again later with a new epoch.
    pub(super) fn kill_control_for(&mut self, pause: Duration, with_activator: bool) {
        let epochs: Vec<u64> = self.controls.iter().map(|control| control.epoch).collect();
        for epoch in epochs {
            self.end_control(epoch);
        }
        self.control_dead_until = self.disturbs(pause);
        if with_activator {
            self.kill_activator_for(pause);
        }
    }

    /// The network between the store and all controls that run is cut.
    pub(super) fn cut_store(&mut self, pause: Duration) {
        let until = self.disturbs(pause);
        for control in &self.controls {
            log(self.now, || {
                format!(
                    "control {} cannot reach the store for {pause:?}",
                    control.epoch
                )
            });
            self.calls.cut(control.epoch, until);
        }
    }

    pub(super) fn kill_activator_for(&mut self, pause: Duration) {
        self.log(|| format!("the activator is killed for {pause:?}"));
        self.lose_link();
        if let Some(mut activator) = self.activator.take() {
            activator.kill(&mut self.processes);
        }
        self.activator_dead_until = self.disturbs(pause);
    }

    fn disturb_activator(&mut self) {
        let pause = self.random.period(PAUSE_MS_MAX);
        if self.random.once_in(500) {
            self.kill_activator_for(pause);
        }
        if self.random.once_in(200) {
            self.lose_link();
            self.disturbs(Duration::ZERO);
        }
        if self.random.once_in(400) {
            self.log(|| format!("the link is cut for {pause:?}"));
            self.lose_link();
            self.link_cut_until = self.disturbs(pause);
        }
    }

    fn disturb_node(&mut self, index: usize) {
        let pause = self.random.period(PAUSE_MS_MAX);
        if self.random.once_in(150) {
            self.machines[index].node.frozen_until = self.disturbs(pause);
        }
        if self.random.once_in(300) {
            self.machines[index].node.control_cut_until = self.disturbs(pause);
            if self.random.once_in(2) {
                self.machines[index].node.activator_cut_until = self.now + pause;
            }
            self.lose_stream(index);
        }
        // Of two controls, nodes reach now the one, now the other.
        let often = if self.controls.len() > 1 { 10 } else { 120 };
        if self.random.once_in(often) {
            self.lose_stream(index);
            self.disturbs(Duration::ZERO);
        }
        if self.random.once_in(300) {
            self.lose_stream(index);
            self.machines[index].restart();
            self.disturbs(Duration::ZERO);
        }
        if self.random.once_in(1_500) {
            self.log(|| format!("n{index} is off for {pause:?}"));
            let (now, until) = (self.now, self.disturbs(pause));
            self.lose_stream(index);
            self.machines[index].reboot(now, until, &mut self.processes);
        }
    }

    pub(super) fn is_without(&self, without: Without) -> bool {
        self.without == without
    }
}
