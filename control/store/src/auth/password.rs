//! Hashes of passwords by bcrypt, on threads that serve no requests.

use std::{sync::Arc, thread};

use bytes::Bytes;
use tokio::{sync::Semaphore, task};

use super::AuthError;

/// Bytes of the longest password: bcrypt ignores further ones, which etcd refuses.
pub const PASSWORD_BYTES_MAX: usize = 72;

/// The costs that bcrypt has; the work doubles with each step.
pub const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 4..=31;

/// Hashes passwords on the runtime's blocking threads. A hash takes tens of milliseconds, so at most
/// one per processor runs at a time; others wait.
#[derive(Debug)]
pub(super) struct Hasher {
    cost: u32,
    running: Arc<Semaphore>,
}

impl Hasher {
    /// A hasher with a cost of [`BCRYPT_COSTS`].
    pub(super) fn new(cost: u32) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self {
            cost,
            running: Arc::new(Semaphore::new(processors)),
        }
    }

    /// The hash of a password. Cancel safe.
    pub(super) async fn hash(&self, password: String) -> Result<Bytes, AuthError> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(AuthError::PasswordTooLong);
        }
        let cost = self.cost;
        let hashed = self.run(move || bcrypt::hash(password, cost)).await?;
        hashed.map(Bytes::from).or(Err(AuthError::Hashing))
    }

    /// Whether the hash is that of the password. Cancel safe.
    pub(super) async fn matches(&self, password: String, hash: Bytes) -> Result<bool, AuthError> {
        let verify = move || {
            let hash = std::str::from_utf8(&hash).unwrap_or_default();
            // What is not a hash, such as the password of a user without one, matches nothing.
            bcrypt::verify(password, hash).unwrap_or(false)
        };
        self.run(verify).await
    }

    async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, AuthError> {
        let running = Arc::clone(&self.running);
        let permit = running.acquire_owned().await.or(Err(AuthError::Hashing))?;
        // The permit moves to the thread, which goes on when the request is cancelled.
        let task = task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        });
        task.await.or(Err(AuthError::Hashing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hash_matches_its_password_only() {
        let hasher = Hasher::new(*BCRYPT_COSTS.start());
        for password in ["", "secret", "with a \0 byte", &"x".repeat(72)] {
            let hash = hasher.hash(password.into()).await.unwrap();
            assert!(hasher.matches(password.into(), hash.clone()).await.unwrap());
            assert!(!hasher.matches("other".into(), hash).await.unwrap());
        }
    }

    #[tokio::test]
    async fn a_password_longer_than_the_input_of_bcrypt_is_refused() {
        let hasher = Hasher::new(*BCRYPT_COSTS.start());
        let refused = hasher.hash("x".repeat(73)).await;
        assert_eq!(refused, Err(AuthError::PasswordTooLong));
    }

    #[tokio::test]
    async fn a_malformed_hash_matches_nothing() {
        let hasher = Hasher::new(*BCRYPT_COSTS.start());
        for hash in [&b""[..], b"not a hash", b"\xff", b"$2b$99$x"] {
            let hash = Bytes::copy_from_slice(hash);
            assert!(!hasher.matches("x".into(), hash).await.unwrap());
        }
    }

    #[tokio::test]
    async fn hashes_made_by_etcd_are_verified() {
        // "U*U", from the test vectors of crypt_blowfish; etcd writes the same version, 2a.
        let hash = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
        let hasher = Hasher::new(*BCRYPT_COSTS.start());
        assert!(hasher.matches("U*U".into(), hash.into()).await.unwrap());
    }
}
