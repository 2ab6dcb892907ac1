//! The end of a pod, and why, for its status. Pure.

use dormouse_fleet::proto::pod_status::Phase;
use serde::{Deserialize, Serialize};

use super::probe::Unready;
use super::process::Exit;

/// The exit code of a process that was never started, as with containerd.
const NOT_STARTED: i32 = 128;

/// The end of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ending {
    /// Exit status 0.
    pub(super) succeeded: bool,
    /// The reason in CamelCase, as in Kubernetes.
    pub(super) reason: String,
    /// The message for users; the lines after the first one are the pod's output.
    pub(super) message: String,
    /// The exit code of the process.
    pub(super) exit_code: i32,
}

impl Ending {
    /// The end of a pod whose process was not started.
    pub(super) fn failure(reason: &str, message: String) -> Self {
        Self {
            succeeded: false,
            reason: reason.to_owned(),
            message,
            exit_code: NOT_STARTED,
        }
    }

    /// The end of a pod whose process ended while no agent ran.
    pub(super) fn unseen() -> Self {
        let message = "the process ended while no agent ran".to_owned();
        Self {
            exit_code: Exit::Unknown.code(),
            ..Self::failure("ProcessGone", message)
        }
    }

    /// The end of a process by itself, with the last lines of its output.
    pub(super) fn exited(exit: Exit, output: &[String]) -> Self {
        let succeeded = exit == Exit::Status(0);
        let output = match output {
            [] => " without output".to_owned(),
            lines => format!("\n{}", lines.join("\n")),
        };
        Self {
            succeeded,
            reason: if succeeded { "Completed" } else { "Error" }.to_owned(),
            message: format!("the process {exit}{output}"),
            exit_code: exit.code(),
        }
    }

    /// The end of a pod that needed more memory than its limit.
    pub(super) fn out_of_memory(exit: Exit) -> Self {
        let message = format!("the pod exceeded its limit of memory; the process {exit}");
        Self {
            exit_code: exit.code(),
            ..Self::failure("OOMKilled", message)
        }
    }

    /// The end of a process that was stopped because the pod failed its liveness probe.
    pub(super) fn dead(exit: Exit, cause: &Unready) -> Self {
        let message = format!("{}; the process {exit}", cause.message);
        Self {
            exit_code: exit.code(),
            ..Self::failure("LivenessProbeFailed", message)
        }
    }

    pub(super) fn phase(&self) -> Phase {
        if self.succeeded {
            Phase::Succeeded
        } else {
            Phase::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_has_its_status_or_signal_and_its_last_lines() {
        let lines = ["no configuration".to_owned(), "bye".to_owned()];
        let failed = Ending::exited(Exit::Status(3), &lines);
        assert_eq!((failed.reason.as_str(), failed.exit_code), ("Error", 3));
        assert_eq!(
            failed.message,
            "the process exited with status 3\nno configuration\nbye"
        );
        let killed = Ending::exited(Exit::Signal(11), &[]);
        assert_eq!(killed.exit_code, 139);
        assert_eq!(
            killed.message,
            "the process was killed by signal 11 (SIGSEGV) without output"
        );
        let done = Ending::exited(Exit::Status(0), &[]);
        assert_eq!(
            (done.reason.as_str(), done.phase()),
            ("Completed", Phase::Succeeded)
        );
    }

    #[test]
    fn the_end_of_a_pod_is_read_as_an_earlier_agent_wrote_it() {
        let earlier = r#"{"succeeded":false,"reason":"Error","message":"why"}"#;
        let ending: Ending = serde_json::from_str(earlier).unwrap();
        assert_eq!((ending.message.as_str(), ending.exit_code), ("why", 0));
    }
}
