//! NDP for pods on the link of the uplink (RFC 4861), without the pods' interfaces being on that link. The eBPF program
//! answers solicitations for existing pods; this module sends unsolicited advertisements (7.2.6, RFC 9131), and joins the
//! multicast groups in which solicitations arrive.
//!
//! Reading order: the frame ([`advertisement`]) and its sender ([`advertiser`]), the times ([`schedule`], pure), the state
//! of the uplink ([`uplink`]), the multicast groups ([`groups`]), and the task that joins them ([`Announcer`]).

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use dormouse_agent_ipam::NodePrefix;
use dormouse_agent_pod::{PodEntry, PodTable};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::profile::{Ndp, Profile};
use advertiser::Advertiser;
use groups::Groups;
use schedule::Schedule;
use uplink::{News, Uplink, Watch};

mod advertisement;
mod advertiser;
mod groups;
mod schedule;
mod uplink;

/// A pod table that reports its changes to an [`Announcer`].
pub struct Announced<T> {
    table: T,
    changes: Arc<Changes>,
}

/// The latest change of each pod that the announcer has not processed yet; at most one per pod.
#[derive(Default)]
pub struct Changes {
    changed: Mutex<BTreeMap<Ipv6Addr, Change>>,
    news: Notify,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Came,
    Went,
}

/// Wraps a pod table so that its pods are announced.
pub fn announced<T: PodTable>(table: T) -> (Announced<T>, Arc<Changes>) {
    let changes = Arc::<Changes>::default();
    let heard = Arc::clone(&changes);
    (Announced { table, changes }, heard)
}

impl Changes {
    fn record(&self, address: Ipv6Addr, change: Change) {
        self.changed.lock().insert(address, change);
        self.news.notify_one();
    }

    fn take(&self) -> BTreeMap<Ipv6Addr, Change> {
        mem::take(&mut *self.changed.lock())
    }

    /// Resolves with the changes since the last call, when there are any. Cancel safe.
    async fn next(&self) -> BTreeMap<Ipv6Addr, Change> {
        loop {
            let changes = self.take();
            if !changes.is_empty() {
                return changes;
            }
            self.news.notified().await;
        }
    }
}

impl<T: PodTable> PodTable for Announced<T> {
    fn add(&mut self, pod: PodEntry) -> io::Result<()> {
        self.table.add(pod)?;
        self.changes.record(pod.address, Change::Came);
        Ok(())
    }

    fn remove(&mut self, address: Ipv6Addr, address4: Option<Ipv4Addr>) -> io::Result<()> {
        self.changes.record(address, Change::Went);
        self.table.remove(address, address4)
    }
}

/// Announces pods on the uplink: each pod when it is added, all pods when the agent starts and when the uplink is replaced
/// or comes back.
pub struct Announcer {
    profile: &'static Profile,
    uplink: String,
    /// None: the node has no pods.
    prefix: Option<NodePrefix>,
    changes: Arc<Changes>,
    renewed: Renewed,
}

/// Called when the uplink appears, comes back, or is replaced.
type Renewed = Box<dyn FnMut() + Send>;

impl Announcer {
    /// An announcer for the pods of a node's prefix, if it has any. Pods in the changes when it starts count as existing, not as
    /// new.
    pub fn new(
        profile: &'static Profile,
        uplink: impl Into<String>,
        pods: Option<(NodePrefix, Arc<Changes>)>,
    ) -> Self {
        let (prefix, changes) = pods.unzip();
        Self {
            profile,
            uplink: uplink.into(),
            prefix,
            changes: changes.unwrap_or_default(),
            renewed: Box::new(|| {}),
        }
    }

    /// Sets a function that is called before all pods are announced, to renew what the eBPF program answers with.
    #[must_use]
    pub fn on_renewal(mut self, renewed: impl FnMut() + Send + 'static) -> Self {
        self.renewed = Box::new(renewed);
        self
    }

    /// Runs until `shutdown`, in the calling thread's network namespace. Group memberships stay, as the pods do.
    pub async fn run(self, shutdown: CancellationToken) -> io::Result<()> {
        let session = Session {
            profile: self.profile,
            prefix: self.prefix,
            watch: Watch::open(&self.uplink)?,
            uplink: Uplink::default(),
            groups: None,
            advertiser: None,
            is_refused: false,
            renewed: self.renewed,
            schedule: Schedule::default(),
            start: Instant::now(),
        };
        tokio::select! {
            () = session.work(&self.changes) => {}
            () = shutdown.cancelled() => {}
        }
        Ok(())
    }
}

/// The state of a running announcer.
struct Session {
    profile: &'static Profile,
    prefix: Option<NodePrefix>,
    watch: Watch,
    uplink: Uplink,
    groups: Option<Groups>,
    advertiser: Option<Advertiser>,
    /// Whether the last announcement failed; a series of failures is logged once.
    is_refused: bool,
    renewed: Renewed,
    schedule: Schedule,
    start: Instant,
}

impl Session {
    async fn work(mut self, changes: &Changes) {
        self.note(&changes.take());
        let now = self.watch.look().await;
        self.see(News::Is(now)).await;
        loop {
            let due = self.due();
            tokio::select! {
                changes = changes.next() => self.apply(&changes).await,
                news = self.watch.news() => self.see(news).await,
                () = sleep_until(due) => self.announce(),
            }
        }
    }

    async fn apply(&mut self, changes: &BTreeMap<Ipv6Addr, Change>) {
        self.note(changes);
        if self.answers() {
            self.announce();
            for (address, change) in changes {
                self.regroup(*address, *change).await;
            }
        }
    }

    fn note(&mut self, changes: &BTreeMap<Ipv6Addr, Change>) {
        let now = self.start.elapsed();
        for (address, change) in changes {
            match change {
                Change::Came => self.schedule.add(*address, now),
                Change::Went => self.schedule.remove(*address),
            }
        }
    }

    async fn regroup(&mut self, address: Ipv6Addr, change: Change) {
        let Some(groups) = &self.groups else { return };
        let done = match change {
            Change::Came => groups.join(address).await,
            Change::Went => groups.leave(address).await,
        };
        if let Err(error) = done {
            warn!(%address, %error, "failed to change a multicast group; a switch with MLD snooping may not deliver solicitations for the pod");
        }
    }

    async fn see(&mut self, news: News) {
        let is_lost = match news {
            News::Moved => self.uplink.is_running,
            News::Is(now) => {
                let is_lost = now.needs_announcing_after(&self.uplink);
                self.check_mtu(&now);
                self.uplink = now;
                is_lost
            }
        };
        if is_lost {
            self.announce_all().await;
        }
    }

    /// Announces all pods, for a link whose neighbours may have none of them in their caches.
    async fn announce_all(&mut self) {
        (self.renewed)();
        let index = self.uplink.index;
        let Some(prefix) = self.prefix else {
            return;
        };
        let groups = Groups::on(index, prefix, self.watch.handle().clone());
        let living = self.schedule.living().filter(|_| self.answers());
        if let Err(error) = groups.settle(&living.collect()).await {
            warn!(%error, "failed to join multicast groups; a switch with MLD snooping may not deliver solicitations for pods");
        }
        self.groups = Some(groups);
        if !self.answers() {
            return;
        }
        self.advertiser = Advertiser::open(self.watch.name())
            .inspect_err(|error| warn!(%error, "failed to open the uplink for advertisements; pods are not announced"))
            .ok();
        let pods = self.schedule.living().count();
        info!(pods, index, "announcing all pods on the uplink");
        self.schedule.again(self.start.elapsed());
    }

    fn announce(&mut self) {
        let Some(advertiser) = &self.advertiser else {
            return;
        };
        while let Some(address) = self.schedule.next(self.start.elapsed()) {
            let sent = advertiser.announce(address);
            if let Err(error) = &sent
                && !self.is_refused
            {
                warn!(%address, %error, "failed to announce a pod");
            }
            self.is_refused = sent.is_err();
        }
    }

    /// The time of the next announcement, if the uplink is up.
    fn due(&self) -> Option<Instant> {
        let can_speak = self.uplink.is_running && self.advertiser.is_some();
        let due = self.schedule.due_at().filter(|_| can_speak);
        due.map(|due| self.start + due)
    }

    fn answers(&self) -> bool {
        self.profile.ndp == Ndp::Answer
    }

    fn check_mtu(&self, now: &Uplink) {
        let news = now.mtu.filter(|_| now.mtu != self.uplink.mtu);
        if let Some(mtu) = news
            && let Some(delivered) = self.profile.exceeded_by(mtu)
        {
            warn!(
                mtu,
                delivered,
                profile = self.profile.name,
                "the uplink's MTU is larger than the network's: set it to the MTU of the network profile"
            );
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
