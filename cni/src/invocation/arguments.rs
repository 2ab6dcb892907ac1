//! `CNI_ARGS`: the pairs `K=V;K=V` that a runtime passes beside the configuration. Pure.

use crate::error::CniError;
use crate::message::PodName;

/// The known keys. `K8S_POD_INFRA_CONTAINER_ID` is accepted and ignored: it repeats the container id.
#[derive(Debug, Default)]
pub(super) struct Arguments<'a> {
    /// `IP`
    pub(super) ip: Option<&'a str>,
    /// `MAC`
    pub(super) mac: Option<&'a str>,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    uid: Option<&'a str>,
}

impl<'a> Arguments<'a> {
    /// Unknown keys are refused unless `IgnoreUnknown` is true.
    pub(super) fn parse(text: &'a str) -> Result<Self, CniError> {
        let mut arguments = Self::default();
        let (mut ignore_unknown, mut unknown) = (false, Vec::new());
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                CniError::invalid_environment(format!("CNI_ARGS has `{pair}`, which is not K=V"))
            })?;
            let value = Some(value).filter(|value| !value.is_empty());
            match key {
                "IgnoreUnknown" => ignore_unknown = matches!(value, Some("1" | "true" | "True")),
                "IP" => arguments.ip = value,
                "MAC" => arguments.mac = value,
                "K8S_POD_NAMESPACE" => arguments.namespace = value,
                "K8S_POD_NAME" => arguments.name = value,
                "K8S_POD_UID" => arguments.uid = value,
                "K8S_POD_INFRA_CONTAINER_ID" => {}
                _ => unknown.push(pair),
            }
        }
        if !unknown.is_empty() && !ignore_unknown {
            let unknown = unknown.join(";");
            return Err(
                CniError::invalid_environment(format!("CNI_ARGS has unknown `{unknown}`"))
                    .details("add IgnoreUnknown=1 if it is for another plugin"),
            );
        }
        Ok(arguments)
    }

    /// The Kubernetes pod, if both its namespace and its name are given.
    pub(super) fn pod(&self) -> Option<PodName> {
        Some(PodName {
            namespace: self.namespace?.to_owned(),
            name: self.name?.to_owned(),
            uid: self.uid.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelets_arguments_name_the_pod() {
        let text = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;\
                    K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u-1;OTHER=x";
        let pod = Arguments::parse(text).unwrap().pod().unwrap();
        assert_eq!(
            (pod.namespace.as_str(), pod.name.as_str()),
            ("shop", "web-0")
        );
        assert_eq!(pod.uid.as_deref(), Some("u-1"));
        assert!(Arguments::parse("").unwrap().pod().is_none());
    }

    #[test]
    fn unknown_keys_and_malformed_pairs_are_refused_by_name() {
        for (text, part) in [
            ("OTHER=x", "`OTHER=x`"),
            ("IgnoreUnknown=0;OTHER=x", "`OTHER=x`"),
            ("IgnoreUnknown=1;IP", "`IP`"),
        ] {
            let error = Arguments::parse(text).unwrap_err();
            assert_eq!(error.code, 4);
            assert!(error.msg.contains(part), "{error}");
        }
    }
}
