//! `dormouse token`: tokens with which processes join the cluster, and users send requests.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use dormouse_command::{Columns, CommandError, Exit};
use http::Method;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Context;
use super::codes::Code;
use super::request::ApiRequest;
use crate::api::age::age;
use crate::flags::period;
use crate::trust::{Subject, TokenUser};

/// Where tokens are made.
const OF_JOINS: &str = "/apis/dormouse.dev/v1alpha1/jointokens";
const OF_USERS: &str = "/apis/dormouse.dev/v1alpha1/usertokens";

/// The commands of `token`.
#[derive(Debug, Clone, Subcommand)]
pub enum Arguments {
    /// Make a token. For a process that joins, print its line: address, hash of the certificate authority, secret; for a
    /// user, print the token.
    #[command(after_help = "Examples:
  dormouse token create --node node-1         for this node, once
  dormouse token create --role activator      for one activator, once
  dormouse token create --ttl 10m             for nodes of any name that is not connected, until it expires
  dormouse token create --user ann --group dev --ttl 12h
  dormouse-agent run --node node-1 --join LINE
  kubectl --token TOKEN get pods              as ann")]
    Create(Create),
    /// List the tokens that are valid: those of processes that have not joined yet, and those of users. Their secrets are nowhere.
    #[command(after_help = "Examples:
  dormouse token list
  dormouse token delete ID                    withdraws one of them")]
    List,
    /// Delete a token: it is refused from now on, and open watches of its user end. The id of a token is its part before the dot.
    Delete(Delete),
}

/// The flags of `token create`.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("subject"))]
pub struct Create {
    /// Time for which the token is valid, at most 30 days.
    #[arg(long, default_value = "1h", value_parser = period)]
    ttl: Duration,
    /// Name of the node that joins; the token is valid once.
    #[arg(long, group = "subject")]
    node: Option<String>,
    /// Role of the control plane that joins, such as activator; the token is valid once.
    #[arg(long, group = "subject")]
    role: Option<String>,
    /// User of the API whose requests have the token.
    #[arg(long, group = "subject")]
    user: Option<String>,
    /// Groups of the user.
    #[arg(long = "group", requires = "user", value_delimiter = ',')]
    groups: Vec<String>,
}

/// The argument of `token delete`.
#[derive(Debug, Clone, Args)]
pub struct Delete {
    /// Id of the token.
    id: String,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    match arguments {
        Arguments::Create(create) => make(create, context).await,
        Arguments::List => list(context).await,
        Arguments::Delete(Delete { id }) => delete(&id, context).await,
    }
}

async fn make(create: Create, context: &mut Context) -> Result<Exit, CommandError> {
    let ttl = create.ttl.as_secs();
    let of_join = |subject| {
        (
            OF_JOINS,
            "line",
            json!({"subject": subject, "ttlSeconds": ttl}),
        )
    };
    let (path, field, body) = match (create.node, create.role, create.user) {
        (Some(node), ..) => of_join(Subject::Node(node)),
        (_, Some(role), _) => of_join(Subject::Role(role)),
        (.., Some(name)) => {
            let groups = create.groups;
            let user = TokenUser { name, groups };
            let body = json!({"user": user, "ttlSeconds": ttl});
            (OF_USERS, "token", body)
        }
        _ => of_join(Subject::Nodes),
    };
    let request = ApiRequest {
        body: body.to_string().into_bytes(),
        ..ApiRequest::new(Method::POST, path, "make a token")
    };
    let made = context.request(request).await?;
    let made = made[field].as_str().ok_or_else(|| {
        let message = "cannot make a token: the reply has none";
        let hint = "use the same version of command and server";
        CommandError::new(Code::Output, Exit::No, message, hint)
    })?;
    writeln!(context.out, "{made}")?;
    Ok(Exit::Yes)
}

async fn list(context: &mut Context) -> Result<Exit, CommandError> {
    let headings = ["ID", "FOR", "EXPIRES IN"].map(str::to_owned);
    let mut rows = vec![headings.to_vec()];
    let now = Timestamp::now();
    for (path, field) in [(OF_JOINS, "subject"), (OF_USERS, "user")] {
        let tokens = context.get(path, "list tokens").await?;
        let items = tokens["items"].as_array().map(Vec::as_slice);
        let items = items.unwrap_or_default().iter();
        rows.extend(items.map(|token| row(token, &token[field], now)));
    }
    if rows.len() == 1 {
        context.note("there are no tokens");
        return Ok(Exit::Yes);
    }
    Columns::for_width(context.width).write_all(&mut context.out, &rows)?;
    Ok(Exit::Yes)
}

/// The row of a token for this subject.
fn row(token: &Value, subject: &Value, now: Timestamp) -> Vec<String> {
    let id = token["metadata"]["name"].as_str().unwrap_or_default();
    let expires = token["expires"].as_str().and_then(|text| text.parse().ok());
    let rest = expires.map_or_else(String::new, |expires| age(now, expires));
    vec![id.to_owned(), described(subject), rest]
}

/// What a token is for.
fn described(subject: &Value) -> String {
    let join = Subject::deserialize(subject);
    let user = TokenUser::deserialize(subject);
    match (join, user) {
        (Ok(Subject::Node(name)), _) => format!("node {name}"),
        (Ok(Subject::Nodes), _) => "nodes".to_owned(),
        (Ok(Subject::Role(role)), _) => format!("role {role}"),
        (_, Ok(TokenUser { name, groups })) if groups.is_empty() => format!("user {name}"),
        (_, Ok(TokenUser { name, groups })) => format!("user {name} ({})", groups.join(", ")),
        _ => String::new(),
    }
}

/// Deletes the token of a user or of a join: ids of both kinds are random.
async fn delete(id: &str, context: &mut Context) -> Result<Exit, CommandError> {
    // With its secret, it would be in the server's log of requests.
    let id = id.split('.').next().unwrap_or_default();
    let action = format!("delete token {id}");
    let request = async |kind: &str| {
        let path = format!("{kind}/{id}");
        let request = ApiRequest::new(Method::DELETE, &path, &action);
        context.request(request).await
    };
    match request(OF_USERS).await {
        Err(error) if error.exit == Exit::NotFound => request(OF_JOINS).await?,
        answered => answered?,
    };
    writeln!(context.out, "token/{id} deleted")?;
    Ok(Exit::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_what_a_token_is_for_and_the_rest_of_its_time() {
        let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
        let token = json!({"metadata": {"name": "0a"}, "expires": "2026-11-27T12:30:00Z"});
        for (subject, shown) in [
            (json!({"node": "n"}), "node n"),
            (json!("nodes"), "nodes"),
            (json!({"role": "activator"}), "role activator"),
            (json!({"name": "ann"}), "user ann"),
            (
                json!({"name": "ann", "groups": ["dev", "ops"]}),
                "user ann (dev, ops)",
            ),
        ] {
            assert_eq!(row(&token, &subject, now), ["0a", shown, "30m"]);
        }
    }
}
