//! `dormouse token`: tokens with which processes join the cluster, and users send requests.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use dormouse_command::{CommandError, Exit};
use http::Method;
use serde_json::json;

use super::Context;
use super::codes::Code;
use super::request::ApiRequest;
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
  dormouse token create --ttl 10m             for nodes of any name that is not connected, until it expires
  dormouse token create --user ann --group dev --ttl 12h
  dormouse-agent run --node node-1 --join LINE
  kubectl --token TOKEN get pods              as ann")]
    Create(Create),
    /// Delete the token of a user: it is refused from now on. The id of a token is its part before the dot.
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
    /// Role of the control plane that joins, such as activator.
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

async fn delete(id: &str, context: &mut Context) -> Result<Exit, CommandError> {
    // With its secret, it would be in the server's log of requests.
    let id = id.split('.').next().unwrap_or_default();
    let (path, action) = (format!("{OF_USERS}/{id}"), format!("delete token {id}"));
    let request = ApiRequest::new(Method::DELETE, &path, &action);
    context.request(request).await?;
    writeln!(context.out, "token/{id} deleted")?;
    Ok(Exit::Yes)
}
