//! An activator's attachment to its controller: applies what the stream brings, and sends what the activator reports.

use std::time::Duration;

use dormouse_fleet::Boottime;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Hub;
use super::follower::{Change, Follower, Refused};
use super::proto::{Down, Hello, Load, Up};
use crate::{Handle, Report};

/// Interval of loads.
const SECOND: Duration = Duration::from_secs(1);

/// The end of a stream.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// A message of the controller was refused.
    #[error("the message of control was refused")]
    Refused(#[from] Refused),
    /// The stream failed.
    #[error("the stream to control failed")]
    Failed(#[source] Box<tonic::Status>),
    /// The controller has closed the stream.
    #[error("control closed the stream")]
    Closed,
}

/// An activator, to be attached.
pub struct Attachment {
    handle: Handle,
    reports: mpsc::Receiver<Report>,
    follower: Follower,
    second: Interval,
}

/// This machine's boot id.
pub(super) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

impl Attachment {
    /// The activator behind `handle`, whose reports are `reports`. A second activator of the same name replaces the first.
    pub fn new(handle: Handle, reports: mpsc::Receiver<Report>, name: String) -> Self {
        let hello = Hello {
            name,
            boot_id: boot_id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            prefix: format!("{}/96", handle.shared.core.config.acting_prefix),
        };
        // Half a second beside the controller's seconds, if both start together: each of them then has one load.
        let mut second = interval_at(Instant::now() + SECOND / 2, SECOND);
        second.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self {
            handle,
            reports,
            follower: Follower::new(hello),
            second,
        }
    }

    /// Attaches to a controller in this process until `shutdown`.
    pub async fn follow(mut self, hub: Hub, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            let hello = self.open(Boottime::now());
            let (ups, downs) = hub.attach(hello);
            let attached = self.attached(ups, ReceiverStream::new(downs).map(Ok));
            let Some(ended) = shutdown.run_until_cancelled(attached).await else {
                return;
            };
            warn!(%ended, "the activator's stream ended");
            self.closed();
        }
    }

    /// Opens the follower's stream: returns its first message.
    pub(super) fn open(&mut self, now: Boottime) -> Up {
        self.follower.open(now)
    }

    /// The stream has ended, or could not be opened.
    pub(super) fn closed(&mut self) {
        self.handle.shared.core.metrics.attached.set(0);
        self.follower.close();
    }

    /// Waits for `future` and takes reports meanwhile.
    pub(super) async fn meanwhile<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                output = &mut future => return output,
                Some(report) = self.reports.recv() => self.follower.report(report),
                _ = self.second.tick() => self.second_passed(),
            }
        }
    }

    /// Runs one open stream until it ends.
    pub(super) async fn attached(
        &mut self,
        ups: mpsc::Sender<Up>,
        mut downs: impl Stream<Item = Result<Down, Ended>> + Unpin,
    ) -> Ended {
        loop {
            tokio::select! {
                down = downs.next() => {
                    let received = down.unwrap_or(Err(Ended::Closed));
                    if let Err(ended) = received.and_then(|down| self.receive(down)) {
                        return ended;
                    }
                }
                Some(report) = self.reports.recv() => self.follower.report(report),
                _ = self.second.tick() => self.second_passed(),
                permit = ups.reserve(), if self.follower.has_next() => match permit {
                    Ok(permit) => permit.send(self.follower.next(Boottime::now())),
                    Err(_closed) => return Ended::Closed,
                },
            }
        }
    }

    fn receive(&mut self, down: Down) -> Result<(), Ended> {
        let complete = down.complete;
        self.handle.shared.core.metrics.attached.set(1);
        for change in self.follower.receive(down)? {
            match change {
                Change::Route(vip, route) => self.handle.configure(vip, *route),
                Change::Asleep(vip) => self.handle.asleep(vip),
                Change::Absent(vip) => self.handle.absent(vip),
                Change::Ports(ports) => self.handle.listen(&ports),
            }
        }
        if complete {
            self.handle.complete();
            info!(epoch = self.follower.epoch(), "following control");
        }
        Ok(())
    }

    fn second_passed(&mut self) {
        let stats = self.handle.take_stats().into_iter();
        let loads = stats.map(|(vip, stat)| Load {
            vip,
            concurrency: stat.concurrency,
            requests: stat.requests,
        });
        self.follower.loads(loads.collect());
        self.handle.forget_idle();
    }
}
