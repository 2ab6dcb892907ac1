//! The health ports of Services: opened, closed and kept true as Services change.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dormouse_agent_services::services::Health as Answer;
use dormouse_agent_services::{Family, ServiceKey};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::proxy::ProxyHealth;
use super::{answer, server};

/// A port that could not be opened may become free without our being told.
const RETRY: Duration = Duration::from_mins(1);

/// Where health ports listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// On every address of the node.
    Everywhere,
    /// On these addresses, as `nodePortAddresses` chooses them; a family of which none is given has no health ports.
    At(Vec<IpAddr>),
}

impl Listen {
    fn addresses(&self, family: Family, port: u16) -> Vec<SocketAddr> {
        let everywhere = [match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }];
        let addresses = match self {
            Self::Everywhere => &everywhere[..],
            Self::At(addresses) => addresses,
        };
        let own = addresses.iter().filter(|it| Family::of(**it) == family);
        own.map(|address| SocketAddr::new(*address, port)).collect()
    }
}

/// Why a health port is not open. It is tried again when its service changes, when a service gives that port up, and
/// every minute.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The port cannot be listened on.
    #[error(
        "failed to open {address}, the health port of Service {service}: stop what uses it, or give the Service another \
         healthCheckNodePort; it is tried again every minute"
    )]
    Bind {
        /// Whose port it is.
        service: ServiceKey,
        /// Where it should listen.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// Two Services want one port.
    #[error(
        "Service {service} cannot have health port {port} ({}): it is Service {owner}'s; give one of them another \
         healthCheckNodePort", family.name()
    )]
    Taken {
        /// Who does not get it.
        service: ServiceKey,
        /// Who has it.
        owner: ServiceKey,
        /// The port's number.
        port: u16,
        /// The family of the addresses it is wanted on.
        family: Family,
    },
}

/// One open health port.
#[derive(Debug)]
struct Open {
    service: ServiceKey,
    /// Read at every request.
    local_endpoints: Arc<AtomicUsize>,
    end: CancellationToken,
    servers: Vec<JoinHandle<()>>,
}

/// The health ports of all Services. One owner; dropping it closes them.
#[derive(Debug)]
pub struct Health {
    listen: Listen,
    proxy: Arc<ProxyHealth>,
    shutdown: CancellationToken,
    /// What each service that has a health port should answer.
    wanted: HashMap<ServiceKey, [Option<Answer>; 2]>,
    open: HashMap<(Family, u16), Open>,
    failed: BTreeSet<(u16, Family, ServiceKey)>,
    /// When to try the failed ones again; none if there are none.
    retry_at: Option<Instant>,
}

impl Health {
    /// No ports yet; those to come close at `shutdown`, once they have answered what they were asked.
    pub fn new(listen: Listen, proxy: Arc<ProxyHealth>, shutdown: CancellationToken) -> Self {
        Self {
            listen,
            proxy,
            shutdown,
            wanted: HashMap::new(),
            open: HashMap::new(),
            failed: BTreeSet::new(),
            retry_at: None,
        }
    }

    /// Has a service answer like this in each family (as [`dormouse_agent_services::Services::health_checks`] gives it);
    /// without an answer its port closes. Costs what differs. When this returns, ports that were given up are free.
    ///
    /// Returns the ports that could not be opened. Not cancel safe: to be awaited to its end.
    pub async fn set(
        &mut self,
        service: &ServiceKey,
        answers: [Option<Answer>; 2],
    ) -> Vec<HealthError> {
        let former = match answers {
            [None, None] => self.wanted.remove(service),
            _ => self.wanted.insert(service.clone(), answers),
        };
        let former = former.unwrap_or_default();
        let mut errors = Vec::new();
        for family in Family::ALL {
            let port = |answers: [Option<Answer>; 2]| answers[family.index()].map(|it| it.port);
            let (old, new) = (port(former), port(answers));
            if let Some(port) = old.filter(|port| new != Some(*port)) {
                errors.extend(self.give_up(service, family, port).await);
            }
            if let Some(answer) = answers[family.index()] {
                errors.extend(self.provide(service, family, answer));
            }
        }
        self.schedule();
        errors
    }

    /// Waits until ports that could not be opened are to be tried again, tries, and returns what still fails; without
    /// such ports it waits for ever. Cancel safe.
    pub async fn retry(&mut self) -> Vec<HealthError> {
        match self.retry_at {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
        self.retry_at = None;
        let failed: Vec<_> = self.failed.iter().cloned().collect();
        let errors = failed
            .into_iter()
            .filter_map(|(_, family, service)| self.try_again(&service, family));
        let errors = errors.collect();
        self.schedule();
        errors
    }

    /// How many ports are open, and how many should be and are not.
    pub fn counts(&self) -> (usize, usize) {
        (self.open.len(), self.failed.len())
    }

    fn schedule(&mut self) {
        if self.failed.is_empty() {
            self.retry_at = None;
        } else {
            self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
        }
    }

    /// Closes a service's port; whoever waited for it gets it.
    async fn give_up(
        &mut self,
        service: &ServiceKey,
        family: Family,
        port: u16,
    ) -> Option<HealthError> {
        self.failed.remove(&(port, family, service.clone()));
        let is_ours = |open: &&Open| open.service == *service;
        self.open.get(&(family, port)).filter(is_ours)?;
        self.open.remove(&(family, port))?.close().await;
        let from = (port, family, ServiceKey::new("", ""));
        let next = self.failed.range(from..).next();
        let next = next.filter(|(it, of, _)| (*it, *of) == (port, family))?;
        let next = next.2.clone();
        self.try_again(&next, family)
    }

    fn try_again(&mut self, service: &ServiceKey, family: Family) -> Option<HealthError> {
        let answer = self.wanted.get(service)?[family.index()]?;
        self.provide(service, family, answer)
    }

    /// Has the service's port open, with this answer.
    fn provide(
        &mut self,
        service: &ServiceKey,
        family: Family,
        answer: Answer,
    ) -> Option<HealthError> {
        let waiting = (answer.port, family, service.clone());
        let opened = match self.open.get(&(family, answer.port)) {
            Some(open) if open.service == *service => {
                let count = &open.local_endpoints;
                count.store(answer.local_endpoints, Ordering::Relaxed);
                return None;
            }
            Some(open) => Err(HealthError::Taken {
                service: service.clone(),
                owner: open.service.clone(),
                port: answer.port,
                family,
            }),
            None => self.open(service, family, answer),
        };
        match opened {
            Ok(open) => {
                self.failed.remove(&waiting);
                self.open.insert((family, answer.port), open);
                None
            }
            Err(error) => {
                self.failed.insert(waiting);
                Some(error)
            }
        }
    }

    /// Opens a port on all its addresses or on none.
    fn open(
        &self,
        service: &ServiceKey,
        family: Family,
        answer: Answer,
    ) -> Result<Open, HealthError> {
        let addresses = self.listen.addresses(family, answer.port);
        let listeners = addresses.into_iter().map(|address| {
            server::listen(address).map_err(|source| HealthError::Bind {
                service: service.clone(),
                address,
                source,
            })
        });
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        let local_endpoints = Arc::new(AtomicUsize::new(answer.local_endpoints));
        let end = self.shutdown.child_token();
        let serve = |listener| {
            let (service, proxy) = (service.clone(), Arc::clone(&self.proxy));
            let count = Arc::clone(&local_endpoints);
            let respond = move |_: &_| {
                let count = count.load(Ordering::Relaxed);
                answer::service(&service, count, proxy.is_healthy(Instant::now()))
            };
            tokio::spawn(server::answer(listener, respond, end.clone()))
        };
        Ok(Open {
            service: service.clone(),
            servers: listeners.into_iter().map(serve).collect(),
            local_endpoints,
            end,
        })
    }
}

impl Open {
    /// Returns once the listening sockets are closed.
    async fn close(mut self) {
        self.end.cancel();
        for server in self.servers.drain(..) {
            let _ = server.await;
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

#[cfg(test)]
mod tests;
