//! The shell of authentication: the state, the tokens and the hashing of passwords behind locks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::time::Instant;

use super::{
    AuthError, Caller, Change, Right, State,
    check::Check,
    password::Hasher,
    token::{self, Tokens},
};
use crate::{lease::LeaseId, proto::etcdserverpb::TxnRequest};

/// Options of authentication; the defaults are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time to live of an unused token; etcd's `--auth-token-ttl`.
    pub token_ttl: Duration,
    /// Cost of new hashes of passwords, one of [`super::BCRYPT_COSTS`]; etcd's `--bcrypt-cost`.
    pub bcrypt_cost: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            token_ttl: Duration::from_mins(5),
            bcrypt_cost: 10,
        }
    }
}

/// What a request authenticates with; the token precedes the certificate.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The token of a login.
    pub token: Option<Arc<str>>,
    /// The common name of the client's verified certificate.
    pub common_name: Option<Arc<str>>,
}

/// While it is held, users and roles do not change.
pub(crate) type Unchanged<'a> = RwLockReadGuard<'a, State>;

/// Users, roles and logins.
#[derive(Debug)]
pub struct Auth {
    /// The state's flag, so that requests to a store without authentication take no lock.
    enabled: AtomicBool,
    state: RwLock<State>,
    tokens: Mutex<Tokens>,
    hasher: Hasher,
    logins: AtomicU64,
    started: Instant,
}

impl Auth {
    /// No users and no roles; authentication is disabled.
    pub(crate) fn new(options: Options) -> Self {
        Self {
            enabled: AtomicBool::new(false),
            state: RwLock::default(),
            tokens: Mutex::new(Tokens::new(options.token_ttl)),
            hasher: Hasher::new(options.bcrypt_cost),
            logins: AtomicU64::new(0),
            started: Instant::now(),
        }
    }

    /// Whether requests need a user.
    pub fn enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// Reads the state.
    pub fn read<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.state.read())
    }

    /// Replaces the state, at the start.
    pub(crate) fn restore(&mut self, state: State) {
        self.enabled = AtomicBool::new(state.enabled());
        self.state = RwLock::new(state);
    }

    /// Runs an operation of the state, applies its changes and records the new state.
    pub(crate) fn change(
        &self,
        operation: impl FnOnce(&State) -> Result<Vec<Change>, AuthError>,
        record: impl FnOnce(&State),
    ) -> Result<(), AuthError> {
        let mut state = self.state.write();
        let changes = operation(&state)?;
        state.apply(changes);
        record(&state);
        self.enabled.store(state.enabled(), Ordering::Release);
        if !state.enabled() {
            self.tokens.lock().clear();
        }
        Ok(())
    }

    /// Ends the logins of a user, after its deletion or a change of its password.
    pub fn revoke_tokens(&self, user: &str) {
        self.tokens.lock().revoke(user);
    }

    /// The user of a request.
    pub fn caller(&self, credentials: &Credentials) -> Result<Caller, AuthError> {
        let state = self.state.read();
        if !state.enabled() {
            return Ok(Caller::default());
        }
        let user = match &credentials.token {
            None => credentials.common_name.clone(),
            Some(token) => {
                let mut tokens = self.tokens.lock();
                let user = tokens.renew(token, self.started.elapsed());
                Some(user.ok_or(AuthError::InvalidToken)?.into())
            }
        };
        Ok(Caller {
            user,
            revision: state.revision(),
        })
    }

    /// The hash of a new password. Cancel safe.
    pub async fn hash(&self, password: String) -> Result<Bytes, AuthError> {
        self.hasher.hash(password).await
    }

    /// Logs a user in; returns the token. Cancel safe.
    pub async fn authenticate(&self, name: &str, password: &str) -> Result<String, AuthError> {
        loop {
            let (hash, revision) = self.read(|state| {
                let hash = state.login_hash(name)?;
                Ok((hash, state.revision()))
            })?;
            if !self.hasher.matches(password.into(), hash).await? {
                return Err(AuthError::Failed);
            }
            let number = self.logins.fetch_add(1, Ordering::Relaxed);
            let token = token::generate(number).or(Err(AuthError::Hashing))?;
            let state = self.state.read();
            // Otherwise the password may have changed while it was checked.
            if state.revision() == revision && state.enabled() {
                let now = self.started.elapsed();
                self.tokens.lock().add(token.clone(), name.into(), now);
                return Ok(token);
            }
        }
    }

    /// Checks a write of a client; `None` is this process, which may do everything. Users and roles do
    /// not change until the guard is dropped: a caller that writes before has checked and written in
    /// one step.
    pub(crate) fn permit(
        &self,
        caller: Option<&Caller>,
        lease_keys: &dyn Fn(LeaseId) -> Vec<Bytes>,
        check: impl FnOnce(&Check<'_>) -> Result<(), AuthError>,
    ) -> Result<Option<Unchanged<'_>>, AuthError> {
        let Some(caller) = caller else {
            return Ok(None);
        };
        let state = self.state.read();
        if state.enabled() {
            check(&Check {
                state: &state,
                caller,
                lease_keys,
            })?;
        }
        Ok(Some(state))
    }

    /// Checks the permissions of a transaction that only reads.
    pub fn check_read_txn(&self, caller: &Caller, request: &TxnRequest) -> Result<(), AuthError> {
        let checked = self.permit(Some(caller), &|_| Vec::new(), |check| check.txn(request));
        checked.map(drop)
    }

    /// Checks that the user may read a range.
    pub fn check_read(
        &self,
        caller: &Caller,
        key: &[u8],
        range_end: &[u8],
    ) -> Result<(), AuthError> {
        self.read(|state| state.check_range(caller, Right::Read, (key, range_end)))
    }
}
