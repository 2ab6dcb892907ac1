//! The tasks that wait until a change of a VIP has settled: only those of the VIPs that may have settled are woken.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

/// The waiting tasks of each VIP.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_vip: BTreeMap<u32, Vec<oneshot::Sender<()>>>,
}

impl Waiters {
    /// Adds a task, which is woken by the next [`Waiters::wake`] of its VIP: the receiver then resolves to an error.
    pub(crate) fn add(&mut self, vip: u32) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let tasks = self.by_vip.entry(vip).or_default();
        tasks.retain(|task| !task.is_closed());
        tasks.push(sender);
        receiver
    }

    /// Wakes the tasks of a VIP.
    pub(crate) fn wake(&mut self, vip: u32) {
        self.by_vip.remove(&vip);
    }

    /// Wakes the tasks of all VIPs.
    pub(crate) fn wake_all(&mut self) {
        self.by_vip.clear();
    }

    /// Removes a VIP whose tasks have all ended.
    pub(crate) fn forget(&mut self, vip: u32) {
        if let Some(tasks) = self.by_vip.get(&vip)
            && tasks.iter().all(oneshot::Sender::is_closed)
        {
            self.by_vip.remove(&vip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError;

    #[test]
    fn only_the_tasks_of_a_woken_vip_are_woken() {
        let mut waiters = Waiters::default();
        let (mut one, mut two) = (waiters.add(1), waiters.add(2));
        waiters.wake(1);
        assert_eq!(one.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(two.try_recv(), Err(TryRecvError::Empty));
        waiters.wake_all();
        assert_eq!(two.try_recv(), Err(TryRecvError::Closed));
    }

    #[test]
    fn ended_tasks_leave_nothing() {
        let mut waiters = Waiters::default();
        for _ in 0..3 {
            drop(waiters.add(1));
        }
        assert_eq!(waiters.by_vip[&1].len(), 1);
        waiters.forget(1);
        assert!(waiters.by_vip.is_empty());
    }
}
