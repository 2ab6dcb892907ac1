//! The reasons in events, conditions and the column REASON: what each means, and what to do.

/// A reason, its meaning and the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    pub(super) mend: &'static str,
}

const fn reason(name: &'static str, meaning: &'static str, mend: &'static str) -> Reason {
    Reason {
        name,
        meaning,
        mend,
    }
}

const NOTHING: &str = "nothing to do";
const OUTPUT: &str = "dormouse logs app/NAME --previous shows its output";

/// All reasons.
pub(super) const REASONS: &[Reason] = &[
    reason(
        "AddressRefused",
        "the node has reported an address for the pod that the pod cannot have: the message says why",
        "the address range of the node (podCIDRs), and the ranges of VIPs and Services: they may not overlap",
    ),
    reason(
        "Asleep",
        "the app sleeps, and no pod of its newest revision was ready yet: the revision starts with the next wake",
        "send it a request, or set scale.min: 1",
    ),
    reason(
        "AwaitsTrafficSplit",
        "pods of the newest revision wait until the traffic is divided: they would get the share of the one before",
        "the condition TrafficReady of dormouse get app NAME -o yaml says what is missing",
    ),
    reason(
        "BadResponse",
        "a ready pod failed the last request: it closed the connection, or sent what is no HTTP, or HTTP/1 to a request in HTTP/2",
        "dormouse logs app/NAME; the reason goes with the pod's next answer",
    ),
    reason(
        "Completed",
        "the process has ended with status 0: a server does not",
        OUTPUT,
    ),
    reason(
        "ContainerCreating",
        "the node prepares the pod: its cgroup, its namespace, its network, its process",
        "wait; dormouse explain pod NAME after a few seconds",
    ),
    reason(
        "CrashLoopBackOff",
        "two or more pods have failed in a row: the next one waits for 10 s, then twice as long each time, 5 minutes at most",
        "dormouse explain app NAME has the last failure; apply a repaired manifest, or dormouse rollout undo app NAME",
    ),
    reason(
        "CreateFailed",
        "control could not write the pod to the store",
        "look at GET /readyz?verbose of control and at its log",
    ),
    reason(
        "Ended",
        "the pod has ended, and its node gave no reason",
        OUTPUT,
    ),
    reason(
        "Error",
        "the process has ended: its exit status or signal, and the last lines of its output",
        OUTPUT,
    ),
    reason(
        "FailedScheduling",
        "no node fits the pod: the message has the number of nodes that each filter rejected",
        "lower the pod's requests, correct its nodeSelector, or add a node",
    ),
    reason(
        "FleetConnected",
        "the node has a fleet stream: it accepts pods",
        NOTHING,
    ),
    reason(
        "Gone",
        "the node no longer knows the pod: it was removed there",
        NOTHING,
    ),
    reason(
        "InForce",
        "the traffic is divided as the manifest says",
        NOTHING,
    ),
    reason(
        "InvalidAnnotation",
        "an annotation that is a setting has a value that is not allowed: it is ignored, the others count. The API refuses such an app",
        "correct the annotation that the message names",
    ),
    reason(
        "InvalidPod",
        "the node cannot run a pod of this specification",
        "correct the field that the message names",
    ),
    reason(
        "LivenessProbeFailed",
        "the pod failed its livenessProbe, and was ended",
        "correct the probe, or raise its timeoutSeconds or failureThreshold",
    ),
    reason(
        "NameTaken",
        "a revision needs an app of its name to get traffic, and there is another app of that name",
        "delete that app, or apply it under another name",
    ),
    reason(
        "NetworkFailed",
        "the pod got no address or no link",
        "dormouse-agent get addresses, and the agent's log on the node",
    ),
    reason("NewRevisionAvailable", "the rollout is complete", NOTHING),
    reason(
        "NoFleet",
        "the node has no fleet stream and its lease has expired: its pods are replaced elsewhere",
        "is dormouse-agent running there, and can it reach control's port 7443",
    ),
    reason(
        "NoResponse",
        "the port accepts connections, and the readiness probe, or the last request at a ready pod, was not answered in time",
        "dormouse logs app/NAME; raise readinessProbe.timeoutSeconds or spec.timeout for a slow path; a readinessProbe with httpGet keeps requests away from a pod that hangs",
    ),
    reason(
        "NodeLost",
        "the pod's node has no fleet stream",
        "dormouse explain node NAME",
    ),
    reason(
        "NotListening",
        "the process runs, and nothing accepts connections on the pod's port; the message has the ports on which it listens",
        "set spec.targetPort to the port of the process, or listen on :: instead of a loopback address",
    ),
    reason(
        "OOMKilled",
        "the pod exceeded the memory limit of its container, and the kernel killed it",
        "raise resources.limits.memory",
    ),
    reason(
        "Paused",
        "the rollout waits, as spec.paused says",
        "dormouse rollout resume app NAME",
    ),
    reason(
        "PodFailed",
        "a pod has ended by itself; the message has its reason",
        "dormouse explain app NAME",
    ),
    reason(
        "PodsLimited",
        "a limit of pods is reached, of the app, its tenant or all",
        "the message names the flag of dormouse up that sets the limit",
    ),
    reason("PodsReady", "all wanted pods are ready", NOTHING),
    reason(
        "Preempted",
        "a pod of higher priority has the node now, and this pod was deleted for it",
        "give the pod a higher priority, or add a node",
    ),
    reason(
        "PreemptionByScheduler",
        "a pod of higher priority is to have the node: this pod is deleted",
        "give the pod a higher priority, or add a node",
    ),
    reason(
        "ProbeFailed",
        "the readiness probe is answered with another status than 200 to 399",
        "dormouse logs app/NAME; correct the path of the probe",
    ),
    reason(
        "ProcessGone",
        "the process ended while no agent ran on its node",
        NOTHING,
    ),
    reason(
        "ProgressDeadlineExceeded",
        "no further pod of the newest revision was ready within spec.progressDeadlineSeconds; ready pods of the earlier one go on serving",
        "dormouse rollout undo app NAME, or apply a repaired manifest",
    ),
    reason(
        "RevisionMissing",
        "spec.traffic names a revision that does not exist; the split in force stays",
        "dormouse rollout history app NAME lists the revisions",
    ),
    reason(
        "RevisionNotReady",
        "a revision gets its share of the traffic when its pods are ready; the split in force stays until then",
        "dormouse explain app NAME-NUMBER, if it takes long",
    ),
    reason(
        "RollingOut",
        "pods of the newest revision replace those of the earlier one, as they get ready",
        "dormouse rollout status app NAME follows it",
    ),
    reason(
        "RolloutFailed",
        "pods of the newest revision fail: the one before has its traffic again",
        "dormouse rollout undo app NAME, or apply a repaired manifest",
    ),
    reason(
        "RunsNoPods",
        "the node forwards packets and runs no pods",
        "start its agent with --runtime standalone to run pods there",
    ),
    reason(
        "SandboxFailed",
        "the node could not create the pod's cgroup or namespace, or record it on its disk",
        "the agent's log on the node; df and mount of its state folder",
    ),
    reason("Scheduled", "the pod has a node", NOTHING),
    reason(
        "SchedulerError",
        "the scheduler could not decide for the pod: the message has the error",
        "correct the field that the message names",
    ),
    reason(
        "SchedulerUnavailable",
        "the scheduler has not answered within a second; the pod is placed when it does",
        "GET /readyz?verbose of control; start the scheduler",
    ),
    reason(
        "SchedulingGated",
        "the pod has scheduling gates: it gets a node once all of them are removed",
        "remove the gates, or ask who set them",
    ),
    reason(
        "StartError",
        "the command cannot be executed: a missing file or interpreter, a missing permission, a missing working directory",
        "correct container.command or workingDir; the file must exist on the node",
    ),
    reason(
        "StartFailed",
        "the node could not start a process",
        "the agent's log on the node: limits of processes or memory",
    ),
    reason(
        "TrafficSplit",
        "the traffic is divided in another way from now on",
        NOTHING,
    ),
    reason(
        "Unschedulable",
        "no node fits: the message has the number of nodes that each filter rejected",
        "lower the pod's requests, correct its nodeSelector, or add a node",
    ),
    reason(
        "Waking",
        "the app wakes: no pod is ready yet",
        "dormouse explain app NAME",
    ),
    reason(
        "WakesLimited",
        "more apps wake per second than a limit allows: the rest waits",
        "the message names the flag of dormouse up that sets the limit",
    ),
];

/// The reason of this name; upper and lower case are the same.
pub(super) fn find(name: &str) -> Option<&'static Reason> {
    REASONS
        .iter()
        .find(|reason| reason.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Folders of this repository whose programs set reasons.
    const FOLDERS: [&str; 4] = [
        "control/apps/src",
        "control/scheduler/src",
        "agent/src/runtime",
        "docs/APPS.md",
    ];
    /// Words in CamelCase there that are no reasons: types and values of conditions, phases, policies, profiles.
    const OTHERS: [&str; 40] = [
        "AdmissionReview",
        "Always",
        "App",
        "BackoffComplete",
        "Binding",
        "Condition",
        "ContainersReady",
        "Default",
        "DisruptionTarget",
        "Explanation",
        "Failed",
        "False",
        "Hostname",
        "InternalIP",
        "Merge",
        "Namespace",
        "Never",
        "NoSchedule",
        "Node",
        "PascalCase",
        "Pending",
        "Pod",
        "PodResizePending",
        "PodScheduled",
        "PodUID",
        "Preempting",
        "Ready",
        "Running",
        "RuntimeDefault",
        "ScheduleAttemptFailure",
        "Scheduling",
        "Succeeded",
        "True",
        "Unconfined",
        "Unknown",
        "UnschedulablePodAdd",
        "UnschedulablePodUpdate",
        "UnschedulableTimeout",
        "WakeList",
        "WakeTimeline",
    ];

    fn files(path: &Path) -> Vec<PathBuf> {
        let is_test = ["tests", "simulation"]
            .iter()
            .any(|word| path.to_string_lossy().contains(word));
        if is_test {
            return Vec::new();
        }
        if path.is_file() {
            return vec![path.to_owned()];
        }
        let entries = fs::read_dir(path).unwrap();
        entries
            .flat_map(|entry| files(&entry.unwrap().path()))
            .collect()
    }

    /// The words in CamelCase between quotes, before the tests of a file.
    fn words(text: &str, quote: char) -> Vec<String> {
        let code = text.split("#[cfg(test)]").next().unwrap();
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let quoted = lines.flat_map(|line| line.split(quote).skip(1).step_by(2).map(str::to_owned));
        let is_reason = |word: &String| {
            word.starts_with(|c: char| c.is_ascii_uppercase())
                && word.chars().all(|c| c.is_ascii_alphabetic())
                && word.chars().any(|c| c.is_ascii_lowercase())
        };
        quoted.filter(is_reason).collect()
    }

    #[test]
    fn every_reason_that_control_and_nodes_set_is_explained() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = Vec::new();
        for folder in FOLDERS {
            for file in files(&root.join(folder)) {
                let quote = if folder.starts_with("docs") { '`' } else { '"' };
                found.extend(words(&fs::read_to_string(file).unwrap(), quote));
            }
        }
        assert!(found.len() > 40, "{found:?}");
        for word in found.iter().filter(|word| !OTHERS.contains(&word.as_str())) {
            assert!(find(word).is_some(), "{word} is not explained");
        }
        for known in REASONS {
            assert!(
                found.iter().any(|word| word == known.name),
                "nothing sets {}",
                known.name
            );
        }
    }
}
