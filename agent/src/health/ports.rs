//! The health check node ports of Services: opened, updated and closed as Services change.

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

/// Interval of attempts for ports that could not be opened: there is no notification when a port becomes free.
const RETRY: Duration = Duration::from_mins(1);

/// The addresses on which health check node ports listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// All addresses of the node.
    Everywhere,
    /// These addresses, as selected by `nodePortAddresses`; a family without addresses has no health check ports.
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

/// Why a health check node port is not open. Opening is tried again when its Service changes, when another Service releases
/// the port, and every minute.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The kernel refused to listen on the port.
    #[error(
        "failed to open {address}, the health port of Service {service}: stop what uses it, or give the Service another \
         healthCheckNodePort; it is tried again every minute"
    )]
    Bind {
        /// The port's Service.
        service: ServiceKey,
        /// The address and port.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// Two Services have the same port.
    #[error(
        "Service {service} cannot have health port {port} ({}): it is Service {owner}'s; give one of them another \
         healthCheckNodePort", family.name()
    )]
    Taken {
        /// The Service without the port.
        service: ServiceKey,
        /// The Service that has it.
        owner: ServiceKey,
        /// The port number.
        port: u16,
        /// The family of the addresses.
        family: Family,
    },
}

/// An open health check node port.
#[derive(Debug)]
struct Open {
    service: ServiceKey,
    /// The current answer; read at every request.
    local_endpoints: Arc<AtomicUsize>,
    end: CancellationToken,
    servers: Vec<JoinHandle<()>>,
}

/// The health check node ports of all Services. There is one owner; dropping it closes the ports.
#[derive(Debug)]
pub struct Health {
    listen: Listen,
    proxy: Arc<ProxyHealth>,
    shutdown: CancellationToken,
    /// The answers of each Service with a health check node port, by family.
    wanted: HashMap<ServiceKey, [Option<Answer>; 2]>,
    open: HashMap<(Family, u16), Open>,
    failed: BTreeSet<(u16, Family, ServiceKey)>,
    /// Time of the next attempt for ports that could not be opened; none if all are open.
    retry_at: Option<Instant>,
}

impl Health {
    /// Starts without ports; at `shutdown`, ports close after their open requests.
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

    /// Sets a Service's answer in each family (from [`dormouse_agent_services::Services::health_checks`]); without an answer, its
    /// port closes. Cost: the ports that differ. When this returns, released ports are free.
    ///
    /// Returns the ports that could not be opened. Not cancel safe: must be awaited to its end.
    pub async fn set(
        &mut self,
        service: &ServiceKey,
        answers: [Option<Answer>; 2],
    ) -> Vec<HealthError> {
        let previous = match answers {
            [None, None] => self.wanted.remove(service),
            _ => self.wanted.insert(service.clone(), answers),
        };
        let previous = previous.unwrap_or_default();
        let mut errors = Vec::new();
        for family in Family::ALL {
            let port = |answers: [Option<Answer>; 2]| answers[family.index()].map(|it| it.port);
            let (old, new) = (port(previous), port(answers));
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

    /// Waits for the next attempt, tries to open the failed ports, and returns those that still fail. Without failed ports it
    /// never resolves. Cancel safe.
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

    /// Number of open ports, and of ports that failed to open.
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

    /// Closes a Service's port; if another Service waits for the port, it gets it.
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

    /// Opens the Service's port with this answer, or updates the answer of the open port.
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

    /// Opens a port on all its addresses, or on none.
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
    /// Returns when the listening sockets are closed.
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
