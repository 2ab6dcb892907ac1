//! The scheduler of a Kubernetes cluster, over an API server in the test: watches, bindings, and the webhook.
#![expect(clippy::unwrap_used, reason = "a test's own set-up fails by panicking")]

mod cluster;
mod extenders;
mod manifests;
mod reviews;
mod server;
mod webhook;
