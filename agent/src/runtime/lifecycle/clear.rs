//! The removal of what a pod has: its processes, wiring and namespace.

use std::path::PathBuf;
use std::time::Duration;

use dormouse_agent_sys::netns;
use tracing::warn;

use super::Pod;
use crate::runtime::cgroup;
use crate::runtime::failure::StartError;
use crate::runtime::plugin::Attachment;
use crate::runtime::record::Record;
use dormouse_command::error_chain;

/// First and last pause between attempts to clear a pod.
const CLEAR_PAUSE: Duration = Duration::from_millis(200);
const CLEAR_PAUSE_LAST: Duration = Duration::from_secs(10);

impl Pod {
    /// Removes the pod's processes, wiring and namespace; repeats until it succeeds.
    pub(super) async fn clear(&mut self) {
        let mut pause = CLEAR_PAUSE;
        while let Err(error) = self.try_clear().await {
            warn!(pod = %self.record.name, error = error_chain(&error), "failed to clear a pod; retrying");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(CLEAR_PAUSE_LAST);
        }
        self.record.address = None;
    }

    async fn try_clear(&self) -> Result<(), StartError> {
        let (cgroup, netns) = self.paths();
        let fail = |path: PathBuf| |source| StartError::Make { path, source };
        cgroup::remove(&cgroup)
            .await
            .map_err(fail(cgroup.clone()))?;
        self.attachment().del().await.map_err(StartError::Wire)?;
        netns::remove(&netns).map_err(fail(netns.clone()))
    }

    pub(super) fn paths(&self) -> (PathBuf, PathBuf) {
        let uid = &self.record.uid;
        (self.config.cgroup_path(uid), self.config.netns_path(uid))
    }

    pub(super) fn attachment(&self) -> Attachment<'_> {
        let Record {
            uid,
            namespace,
            name,
            cohort,
            ..
        } = &self.record;
        Attachment {
            config: &self.config,
            uid,
            namespace,
            name,
            cohort: *cohort,
        }
    }
}
