//! The securityContext of a pod and its container: each field is honoured, or refused with its path. Pure.

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Capabilities, Container, PodSecurityContext, PodSpec, SeccompProfile,
    SecurityContext,
};

use super::SpecError;

/// The first of the users that pods get without `runAsUser`: above those of users, of systemd's and of subordinate ids
/// (systemd, UIDS-GIDS.md), below the sign bit.
const OWN_USERS: u32 = 0x7000_0000;
/// Bits of their number. Two pods with the same one share limits of the kernel, and nothing else.
const OWN_USERS_BITS: u32 = 28;
const _: () = assert!(OWN_USERS.trailing_zeros() >= OWN_USERS_BITS);
/// The largest id, as in Kubernetes.
const ID_MAX: i64 = i32::MAX as i64;

/// The rights of a pod's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::runtime) struct Security {
    /// `runAsUser`; none: a user of the pod's own.
    pub(in crate::runtime) user: Option<u32>,
    /// `runAsGroup`; none: the group with the user's number.
    pub(in crate::runtime) group: Option<u32>,
    /// `supplementalGroups` and `fsGroup`.
    pub(in crate::runtime) groups: Vec<u32>,
    /// Calls are filtered, unless the seccomp profile is `Unconfined`.
    pub(in crate::runtime) is_filtered: bool,
}

/// The user of a pod without `runAsUser`: of its uid, so that a pod has the same one again.
pub(in crate::runtime) fn own_user(uid: &str) -> u32 {
    // FNV-1a.
    let hash = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    OWN_USERS | (hash >> (u32::BITS - OWN_USERS_BITS))
}

impl Security {
    pub(super) fn of(pod: &PodSpec, container: &Container) -> Result<Self, SpecError> {
        let of_pod = pod.security_context.clone().unwrap_or_default();
        let of_container = container.security_context.clone().unwrap_or_default();
        refuse("spec", &host(pod))?;
        refuse("spec.securityContext", &in_pod(&of_pod))?;
        refuse(
            "spec.containers[0].securityContext",
            &in_container(&of_container),
        )?;
        let seccomp = of_container.seccomp_profile.or(of_pod.seccomp_profile);
        let supplemental = of_pod.supplemental_groups.unwrap_or_default();
        let groups = supplemental.into_iter().chain(of_pod.fs_group);
        Ok(Self {
            user: id(of_container.run_as_user.or(of_pod.run_as_user)),
            group: id(of_container.run_as_group.or(of_pod.run_as_group)),
            groups: groups.filter_map(|group| id(Some(group))).collect(),
            is_filtered: seccomp.is_none_or(|profile| profile.type_ != "Unconfined"),
        })
    }
}

/// Whether a field has a value that a node refuses; the field; why.
type Refusal = (bool, &'static str, &'static str);

const NO_ROOT: &str = "use 1 to 2147483647: pods do not run as root";
const NO_SELINUX: &str = "SELinux labels are not supported";
const NO_WINDOWS: &str = "a node runs Linux";
const APPARMOR: &str = "only Unconfined is supported";
const SECCOMP: &str = "use RuntimeDefault or Unconfined";
const NAMESPACE: &str = "a pod has its own namespaces";

fn refuse(object: &str, refusals: &[Refusal]) -> Result<(), SpecError> {
    match refusals.iter().find(|(is_refused, ..)| *is_refused) {
        Some((_, field, why)) => Err(SpecError::Field(format!("{object}.{field}"), why)),
        None => Ok(()),
    }
}

fn host(pod: &PodSpec) -> [Refusal; 4] {
    let shared = |field: Option<bool>| field == Some(true);
    [
        (shared(pod.host_network), "hostNetwork", NAMESPACE),
        (shared(pod.host_pid), "hostPID", NAMESPACE),
        (shared(pod.host_ipc), "hostIPC", NAMESPACE),
        (
            pod.host_users == Some(false),
            "hostUsers",
            "user namespaces are not supported",
        ),
    ]
}

fn in_pod(context: &PodSecurityContext) -> [Refusal; 11] {
    let groups = context.supplemental_groups.iter().flatten();
    let is_merged = context.supplemental_groups_policy.as_deref() == Some("Merge");
    let sysctls = context.sysctls.as_deref().unwrap_or_default();
    [
        (is_refused(context.run_as_user), "runAsUser", NO_ROOT),
        (is_refused(context.run_as_group), "runAsGroup", NO_ROOT),
        (is_refused(context.fs_group), "fsGroup", NO_ROOT),
        (
            groups.copied().any(|group| is_refused(Some(group))),
            "supplementalGroups",
            NO_ROOT,
        ),
        (
            is_merged,
            "supplementalGroupsPolicy",
            "only Strict is supported: the node's /etc/group is not the pod's",
        ),
        (
            !sysctls.is_empty(),
            "sysctls",
            "are not supported; a pod may use ports below 1024 without",
        ),
        (
            is_unsupported(context.seccomp_profile.as_ref()),
            "seccompProfile",
            SECCOMP,
        ),
        (
            is_confined(context.app_armor_profile.as_ref()),
            "appArmorProfile",
            APPARMOR,
        ),
        (
            context.se_linux_options.is_some(),
            "seLinuxOptions",
            NO_SELINUX,
        ),
        (
            context.se_linux_change_policy.is_some(),
            "seLinuxChangePolicy",
            NO_SELINUX,
        ),
        (
            context.windows_options.is_some(),
            "windowsOptions",
            NO_WINDOWS,
        ),
    ]
}

fn in_container(context: &SecurityContext) -> [Refusal; 11] {
    let is_set = |field: Option<bool>| field == Some(true);
    let mount = context.proc_mount.as_deref().unwrap_or("Default");
    [
        (
            is_set(context.privileged),
            "privileged",
            "pods have no capabilities",
        ),
        (
            is_set(context.allow_privilege_escalation),
            "allowPrivilegeEscalation",
            "no_new_privs is set for all pods",
        ),
        (
            adds(context.capabilities.as_ref()),
            "capabilities.add",
            "pods have no capabilities; a pod may use ports below 1024 without",
        ),
        (
            context.read_only_root_filesystem == Some(false),
            "readOnlyRootFilesystem",
            "the root, which is the node's, is read-only for all pods",
        ),
        (mount != "Default", "procMount", "only Default is supported"),
        (is_refused(context.run_as_user), "runAsUser", NO_ROOT),
        (is_refused(context.run_as_group), "runAsGroup", NO_ROOT),
        (
            is_unsupported(context.seccomp_profile.as_ref()),
            "seccompProfile",
            SECCOMP,
        ),
        (
            is_confined(context.app_armor_profile.as_ref()),
            "appArmorProfile",
            APPARMOR,
        ),
        (
            context.se_linux_options.is_some(),
            "seLinuxOptions",
            NO_SELINUX,
        ),
        (
            context.windows_options.is_some(),
            "windowsOptions",
            NO_WINDOWS,
        ),
    ]
}

/// Root's id, or none at all.
fn is_refused(given: Option<i64>) -> bool {
    given.is_some_and(|given| !(1..=ID_MAX).contains(&given))
}

fn id(given: Option<i64>) -> Option<u32> {
    given.and_then(|given| u32::try_from(given).ok())
}

/// NET_BIND_SERVICE is no addition: low ports are allowed anyway.
fn adds(capabilities: Option<&Capabilities>) -> bool {
    let added = capabilities.and_then(|capabilities| capabilities.add.as_ref());
    added
        .into_iter()
        .flatten()
        .any(|name| name != "NET_BIND_SERVICE")
}

fn is_unsupported(profile: Option<&SeccompProfile>) -> bool {
    profile.is_some_and(|profile| !["RuntimeDefault", "Unconfined"].contains(&&*profile.type_))
}

fn is_confined(profile: Option<&AppArmorProfile>) -> bool {
    profile.is_some_and(|profile| profile.type_ != "Unconfined")
}

#[cfg(test)]
mod tests;
