//! The manifests of `deploy/`: each is what Kubernetes accepts, names flags that exist, and names that tie up.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod flags;
mod manifests;
mod ties;
