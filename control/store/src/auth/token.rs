//! Simple tokens: random names of logins, valid until they are unused for a time to live.

use std::{collections::HashMap, time::Duration};

/// Time since the start of the server.
pub(super) type Uptime = Duration;

/// Letters of a token before its number, as in etcd.
const PREFIX_LETTERS: usize = 16;
const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The text of the token for a login: random letters, a full stop and the number of the login.
/// Fails if the operating system has no random bytes.
pub(super) fn generate(number: u64) -> Result<String, getrandom::Error> {
    let mut token = String::new();
    while token.len() < PREFIX_LETTERS {
        let mut random = [0; PREFIX_LETTERS];
        getrandom::fill(&mut random)?;
        // Bytes beyond a multiple of the letters would favour the first ones.
        let fair = random.iter().filter(|&&byte| byte < 4 * 52);
        let letters = fair.map(|&byte| char::from(LETTERS[usize::from(byte % 52)]));
        token.extend(letters.take(PREFIX_LETTERS - token.len()));
    }
    Ok(format!("{token}.{number}"))
}

#[derive(Debug)]
struct Login {
    user: String,
    expiry: Uptime,
}

/// The valid tokens. They are in memory only: a restart ends all logins.
#[derive(Debug)]
pub(super) struct Tokens {
    ttl: Duration,
    logins: HashMap<String, Login>,
}

impl Tokens {
    /// No tokens; each one expires `ttl` after its last use.
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            logins: HashMap::new(),
        }
    }

    /// Adds a token, and removes the expired ones, so that their number is bounded by the logins of
    /// one time to live.
    pub(super) fn add(&mut self, token: String, user: String, now: Uptime) {
        self.logins.retain(|_, login| login.expiry >= now);
        let expiry = now + self.ttl;
        self.logins.insert(token, Login { user, expiry });
    }

    /// The user of a valid token, whose time to live starts again.
    pub(super) fn renew(&mut self, token: &str, now: Uptime) -> Option<&str> {
        let login = self.logins.get_mut(token)?;
        if login.expiry < now {
            return None;
        }
        login.expiry = now + self.ttl;
        Some(&login.user)
    }

    /// Ends the logins of a user.
    pub(super) fn revoke(&mut self, user: &str) {
        self.logins.retain(|_, login| login.user != user);
    }

    /// Ends all logins.
    pub(super) fn clear(&mut self) {
        self.logins.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_mins(5);

    #[test]
    fn a_token_expires_a_time_to_live_after_its_last_use() {
        let mut tokens = Tokens::new(TTL);
        tokens.add("t".into(), "bob".into(), Duration::ZERO);
        assert_eq!(tokens.renew("t", TTL), Some("bob"));
        assert_eq!(tokens.renew("t", TTL * 2), Some("bob"));
        let late = TTL * 3 + Duration::from_millis(1);
        assert_eq!(tokens.renew("t", late), None);
    }

    #[test]
    fn a_login_removes_expired_tokens() {
        let mut tokens = Tokens::new(TTL);
        tokens.add("old".into(), "bob".into(), Duration::ZERO);
        tokens.add("new".into(), "bob".into(), TTL * 2);
        assert_eq!(tokens.logins.len(), 1);
    }

    #[test]
    fn revoking_ends_the_logins_of_one_user() {
        let mut tokens = Tokens::new(TTL);
        tokens.add("b".into(), "bob".into(), Duration::ZERO);
        tokens.add("e".into(), "eve".into(), Duration::ZERO);
        tokens.revoke("bob");
        assert_eq!(tokens.renew("b", Duration::ZERO), None);
        assert_eq!(tokens.renew("e", Duration::ZERO), Some("eve"));
    }

    #[test]
    fn a_token_is_sixteen_random_letters_and_a_number() {
        let (first, second) = (generate(7).unwrap(), generate(7).unwrap());
        assert_ne!(first, second);
        let (letters, number) = first.split_once('.').unwrap();
        assert_eq!((letters.len(), number), (PREFIX_LETTERS, "7"));
        assert!(letters.bytes().all(|letter| LETTERS.contains(&letter)));
    }
}
