//! The tokens that were valid of late: a process with one that is used up by now does not guess.

use std::collections::VecDeque;

use dormouse_trust::Token;

/// Tokens that are remembered; the oldest is forgotten for a further one, and then counts as wrong.
const TOKENS_MAX: usize = 1_024;

/// The hashes of tokens, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Known(VecDeque<String>);

impl Known {
    /// Remembers a token that is valid.
    pub(super) fn insert(&mut self, token: &Token) {
        if self.has(token) {
            return;
        }
        if self.0.len() == TOKENS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(token.hashed());
    }

    /// Whether a token was valid: its secret counts, not its id alone.
    pub(super) fn has(&self, token: &Token) -> bool {
        self.0.contains(&token.hashed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_secret_until_too_many_others_are() {
        let mut known = Known::default();
        let first = Token::create().unwrap();
        known.insert(&first);
        known.insert(&first);
        assert_eq!(known.0.len(), 1);
        let guess = format!("{}.{}", first.id(), "0".repeat(32));
        assert!(known.has(&first) && !known.has(&guess.parse().unwrap()));
        for _ in 0..TOKENS_MAX {
            known.insert(&Token::create().unwrap());
        }
        assert_eq!(known.0.len(), TOKENS_MAX);
        assert!(!known.has(&first));
    }
}
