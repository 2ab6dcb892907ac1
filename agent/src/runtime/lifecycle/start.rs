//! The start of a pod: cgroup, network, log, process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use dormouse_agent_logs::{Meta, Output};
use dormouse_agent_sys::netns;
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::pod_status::Phase;
use tracing::{info, warn};

use super::Pod;
use crate::runtime::ending::Ending;
use crate::runtime::failure::StartError;
use crate::runtime::process::{PodFiles, Running};
use crate::runtime::record::State;
use crate::runtime::spec::{Spec, SpecError};
use crate::runtime::{cgroup, node_ids};
use dormouse_command::error_chain;

impl Pod {
    /// Creates everything the pod needs and starts its process.
    pub(super) async fn starting(&mut self, found: bool) -> Option<Running> {
        if found {
            // Left incomplete by an agent that was killed.
            self.clear().await;
            self.forget_start_error();
        }
        self.report(Phase::Pending).await;
        match self.start(found).await {
            Ok(running) => Some(running),
            Err(error) => {
                let message = error_chain(&error);
                warn!(pod = %self.record.name, reason = error.reason(), message, "pod not started");
                let reason = error.reason();
                self.end(Ending::failure(reason, message)).await;
                None
            }
        }
    }

    async fn start(&mut self, is_again: bool) -> Result<Running, StartError> {
        self.record.state = State::Starting;
        self.write()?;
        let spec = Spec::parse(&self.record.pod)?;
        if node_ids::are_taken(&spec.security).map_err(StartError::Users)? {
            return Err(SpecError::NodeId.into());
        }
        let (cgroup, netns) = self.paths();
        let fail = |path: PathBuf| |source| StartError::Make { path, source };
        let made = cgroup::make(&cgroup).and_then(|()| cgroup::limit(&cgroup, &spec.limits));
        made.map_err(fail(cgroup.clone()))?;
        make_netns(netns.clone())
            .await
            .map_err(fail(netns.clone()))?;
        // Before the pod is wired: the writer opens the log meanwhile, and a process that ends at once leaves its output.
        let output = self.begin_log(&spec, is_again)?;
        self.record.times.cni_begin_ns = Boottime::now().0;
        let address = self.attachment().add().await.map_err(StartError::Wire)?;
        self.record.times.cni_end_ns = Boottime::now().0;
        self.record.address = Some(address);
        let running = self.run(&spec, &output).map_err(StartError::Process)?;
        tokio::spawn(output.release());
        self.record.times.started_ns = Boottime::now().0;
        self.record.state = State::Running(running.process);
        self.write()?;
        let pid = running.process.pid;
        info!(pod = %self.record.name, uid = %self.record.uid, %address, pid, "pod started");
        self.report(Phase::Running).await;
        Ok(running)
    }

    fn run(&self, spec: &Spec, output: &Output) -> io::Result<Running> {
        let uid = &self.record.uid;
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let files = PodFiles {
            output,
            netns: File::open(self.config.netns_path(uid))?,
            root: &self.root,
            failure: options.open(self.config.error_path(uid))?,
        };
        Running::start(&self.config, &self.record, spec, &files)
    }

    fn begin_log(&self, spec: &Spec, is_again: bool) -> Result<Output, StartError> {
        let folder = self.config.logs();
        let meta = Meta {
            namespace: self.record.namespace.clone(),
            name: self.record.name.clone(),
            app: spec.app.clone(),
        };
        let begun = folder.begin(&self.record.uid, &meta, is_again);
        begun.map_err(|source| StartError::Make {
            path: folder.path().to_owned(),
            source,
        })
    }

    /// Why the pod's command was not executed; none: it was.
    pub(super) fn start_error(&self) -> Option<String> {
        let text = fs::read_to_string(self.config.error_path(&self.record.uid));
        text.ok().filter(|text| !text.is_empty())
    }

    pub(super) fn forget_start_error(&self) {
        // NotFound: it was never started.
        let _ = fs::remove_file(self.config.error_path(&self.record.uid));
    }
}

/// Creates the pod's namespace; the plugin brings up its loopback interface.
async fn make_netns(path: PathBuf) -> io::Result<()> {
    tokio::task::spawn_blocking(move || netns::create(&path)).await?
}
