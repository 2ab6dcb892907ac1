//! `dormouse node`: what an administrator does to a node's identity.

use clap::{Args, Subcommand};
use dormouse_command::{CommandError, Exit};
use http::Method;
use serde_json::json;

use super::Context;
use super::request::ApiRequest;

/// Where nodes are revoked.
const PATH: &str = "/apis/dormouse.dev/v1alpha1/noderevocations";

/// The commands of `node`.
#[derive(Debug, Clone, Subcommand)]
pub enum Arguments {
    /// End the stream of a node, and refuse its certificates. Its object and its pods stay; it may join again with a new token.
    #[command(after_help = "Examples:
  dormouse node revoke node-1
  dormouse token create --node node-1         admits it again")]
    Revoke(Revoke),
}

/// The flags of `node revoke`.
#[derive(Debug, Clone, Args)]
pub struct Revoke {
    /// Name of the node.
    name: String,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, CommandError> {
    let Arguments::Revoke(Revoke { name }) = arguments;
    let action = format!("revoke node {name}");
    let request = ApiRequest {
        body: json!({"node": name}).to_string().into_bytes(),
        ..ApiRequest::new(Method::POST, PATH, &action)
    };
    let revoked = context.request(request).await?;
    writeln!(context.out, "node/{name} revoked")?;
    if let Some(warning) = revoked["warning"].as_str() {
        context.note(&format!("warning: {warning}"));
    }
    Ok(Exit::Yes)
}
