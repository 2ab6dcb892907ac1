//! The store in a process of its own, of which the CPU time is measured apart from that of the scheduler.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use dormouse_rows::process::Process;
use dormouse_store::{Store, server};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A store, which ends with this value.
pub(crate) struct Served {
    child: Child,
    pub(crate) endpoint: String,
}

impl Served {
    pub(crate) fn start() -> Result<Self> {
        let program = std::env::current_exe().context("failed to find this program")?;
        let mut command = Command::new(program);
        command.arg("--serve-store");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("failed to start the store")?;
        let output = child.stdout.take().context("the store has no output")?;
        let mut endpoint = String::new();
        BufReader::new(output).read_line(&mut endpoint)?;
        let endpoint = endpoint.trim().to_owned();
        Ok(Self { child, endpoint })
    }

    pub(crate) fn process(&self) -> Process {
        Process(self.child.id())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Serves a store in memory until standard input ends; its endpoint is the only line of output.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("[::1]:0").await?;
        dormouse_rows::print(&format!("http://{}", listener.local_addr()?))?;
        let shutdown = CancellationToken::new();
        let ended = shutdown.clone();
        tokio::task::spawn_blocking(move || {
            let _end = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            ended.cancel();
        });
        server::serve(listener, Store::new(), shutdown).await?;
        Ok(())
    })
}
