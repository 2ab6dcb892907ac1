//! `dormouse token`: tokens with which processes join the cluster.

use std::time::Duration;

use clap::{Args, Subcommand};
use dormouse_command::{CommandError, Exit};
use http::Method;
use serde_json::json;

use super::Context;
use super::codes::Code;
use super::request::ApiRequest;
use crate::flags::period;
use crate::trust::Subject;

/// Where tokens are made.
const PATH: &str = "/apis/dormouse.dev/v1alpha1/jointokens";

/// The commands of `token`.
#[derive(Debug, Clone, Subcommand)]
pub enum Arguments {
    /// Make a token, and print the line with which a process joins: address, hash of the certificate authority, secret.
    #[command(after_help = "Examples:
  dormouse token create --node node-1         for this node, once
  dormouse token create --ttl 10m             for nodes of any name that is not connected, until it expires
  dormouse-agent run --node node-1 --join LINE")]
    Create(Create),
}

/// The flags of `token create`.
#[derive(Debug, Clone, Args)]
pub struct Create {
    /// Time for which the token is valid, at most 30 days.
    #[arg(long, default_value = "1h", value_parser = period)]
    ttl: Duration,
    /// Name of the node that joins; the token is valid once.
    #[arg(long)]
    node: Option<String>,
    /// Role of the control plane that joins, such as activator.
    #[arg(long, conflicts_with = "node")]
    role: Option<String>,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    let Arguments::Create(create) = arguments;
    let subject = match (create.node, create.role) {
        (Some(node), _) => Subject::Node(node),
        (None, Some(role)) => Subject::Role(role),
        (None, None) => Subject::Nodes,
    };
    let body = json!({"subject": subject, "ttlSeconds": create.ttl.as_secs()});
    let request = ApiRequest {
        body: body.to_string().into_bytes(),
        ..ApiRequest::new(Method::POST, PATH, "make a join token")
    };
    let made = context.request(request).await?;
    let line = made["line"].as_str().ok_or_else(|| {
        let message = "cannot make a join token: the reply has no line";
        CommandError::new(
            Code::Output,
            Exit::No,
            message,
            "use the same version of command and server",
        )
    })?;
    writeln!(context.out, "{line}")?;
    Ok(Exit::Yes)
}
