//! Bearer tokens of the API's users in the store: whose each is, until when, and the hash of its secret.

use std::time::{Duration, SystemTime};

use dormouse_cluster::ClientError;
use dormouse_rbac::User;
use dormouse_trust::{Identity, Token};
use serde::{Deserialize, Serialize};

use super::tokens::{CreateError, Listed, Tokens};

/// Prefix of the keys of users' tokens; their ids follow.
const PREFIX: &str = "/registry/dormouse.dev/usertokens/";

/// A user of the API, for whom a token is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenUser {
    /// The name.
    pub name: String,
    /// The groups.
    #[serde(default)]
    pub groups: Vec<String>,
}

impl Tokens {
    /// Makes a token with which a user's requests are sent for `ttl`. Only its hash is stored.
    pub async fn create_for_user(
        &self,
        user: TokenUser,
        ttl: Duration,
    ) -> Result<Token, CreateError> {
        Identity::user(&user.name, user.groups.clone())?;
        self.make(PREFIX, user, ttl).await
    }

    /// Deletes the token of a user with this id; false: there is none.
    pub async fn delete_of_user(&self, id: &str) -> Result<bool, ClientError> {
        self.delete(PREFIX, id).await
    }

    /// The tokens of users.
    pub async fn of_users(&self) -> Result<Vec<Listed<TokenUser>>, ClientError> {
        self.list(PREFIX).await
    }

    /// Deletes the tokens of users that have expired at `now`; returns how many.
    pub(super) async fn delete_expired_of_users(
        &self,
        now: SystemTime,
    ) -> Result<usize, ClientError> {
        self.delete_expired(PREFIX, now).await
    }

    /// The user of a token that is valid.
    pub async fn user_of(&self, token: &str) -> Result<Option<Listed<User>>, ClientError> {
        let Ok(token) = token.parse::<Token>() else {
            return Ok(None);
        };
        let found = self.find::<TokenUser>(PREFIX, &token).await?;
        let found = found.filter(|(record, _)| record.expires() > SystemTime::now());
        Ok(found.map(|(record, _)| {
            let expires = record.expires();
            let TokenUser { name, groups } = record.subject;
            Listed {
                id: token.id().to_owned(),
                subject: User::authenticated(name, groups),
                expires,
            }
        }))
    }
}
