//! The limits of a pod's cgroup, from the resources of its container. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::SpecError;

/// Processes and threads of a pod: a pod cannot use up those of the node.
const PIDS_MAX: u32 = 4_096;
/// Period of `cpu.max`, in µs, and its smallest quota (kernel/sched/core.c).
const PERIOD_US: u64 = 100_000;
const QUOTA_US_MIN: u64 = 1_000;
/// `cpu.weight`: a request of one CPU is the weight of a cgroup without any, 100 (cgroup-v2.rst).
const WEIGHT_MAX: u64 = 10_000;
const MILLI_PER_WEIGHT: u64 = 10;

/// Files of the cgroup (version 2) and their text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::runtime) struct Limits(pub(in crate::runtime) Vec<(&'static str, String)>);

impl Limits {
    pub(super) fn of(container: &Container) -> Result<Self, SpecError> {
        let resources = container.resources.clone().unwrap_or_default();
        let memory = amount("limits", resources.limits.as_ref(), "memory")?;
        let cpu = amount("limits", resources.limits.as_ref(), "cpu")?;
        let requested = amount("requests", resources.requests.as_ref(), "cpu")?.or(cpu);
        let mut files = vec![("pids.max", PIDS_MAX.to_string())];
        if let Some(milli) = memory.filter(|milli| *milli > 0) {
            files.push(("memory.max", milli.div_ceil(1_000).to_string()));
            files.push(("memory.swap.max", "0".to_owned()));
            files.push(("memory.oom.group", "1".to_owned()));
        }
        if let Some(milli) = cpu.filter(|milli| *milli > 0) {
            let quota = (milli.saturating_mul(PERIOD_US) / 1_000).max(QUOTA_US_MIN);
            files.push(("cpu.max", format!("{quota} {PERIOD_US}")));
        }
        if let Some(milli) = requested {
            let weight = (milli / MILLI_PER_WEIGHT).clamp(1, WEIGHT_MAX);
            files.push(("cpu.weight", weight.to_string()));
        }
        Ok(Self(files))
    }
}

/// An amount in thousandths.
fn amount(
    kind: &str,
    amounts: Option<&BTreeMap<String, Quantity>>,
    name: &str,
) -> Result<Option<u64>, SpecError> {
    let Some(quantity) = amounts.and_then(|amounts| amounts.get(name)) else {
        return Ok(None);
    };
    let path = || format!("spec.containers[0].resources.{kind}.{name}");
    let milli = milli(&quantity.0).ok_or_else(|| SpecError::Field(path(), "is not a quantity"))?;
    Ok(Some(milli))
}

/// A quantity in thousandths, rounded up.
fn milli(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let (scale, divisor) = scale(suffix)?;
    let places = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = digits.checked_mul(scale)?.checked_mul(1_000)?;
    let milli = scaled.div_ceil(places.checked_mul(divisor)?);
    Some(u64::try_from(milli).unwrap_or(u64::MAX))
}

/// Multiplier and divisor of a suffix.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    if let Some(exponent) = suffix
        .strip_prefix(['e', 'E'])
        .filter(|rest| !rest.is_empty())
    {
        let exponent: i32 = exponent.parse().ok()?;
        let power = 10_u128.checked_pow(exponent.unsigned_abs())?;
        return Some(if exponent < 0 { (1, power) } else { (power, 1) });
    }
    let binary = suffix.strip_suffix('i').filter(|rest| !rest.is_empty());
    let (base, letter, letters) = match binary {
        Some(letter) => (1_024_u128, letter, "KMGTPE"),
        None => (1_000, suffix, "kMGTPE"),
    };
    let power = |place: usize| base.checked_pow(u32::try_from(place).ok()?);
    let place = |letters: &str| match letter {
        "" => Some(0),
        _ => letters
            .chars()
            .position(|one| *letter == *one.to_string())
            .map(|place| place + 1),
    };
    match place(letters) {
        Some(place) => Some((power(place)?, 1)),
        None if binary.is_none() => Some((1, power(place("mun")?)?)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn limits(resources: &Value) -> Result<Limits, SpecError> {
        let container = json!({ "name": "app", "resources": resources });
        Limits::of(&serde_json::from_value(container).unwrap())
    }

    #[test]
    fn quantities_are_read_as_in_kubernetes() {
        let cases = [
            ("250m", 250),
            ("1.5", 1_500),
            ("2", 2_000),
            ("64Mi", 64 << 20),
            ("1k", 1_000_000),
            ("1e3", 1_000_000),
            ("100n", 1),
            ("0", 0),
        ];
        for (text, expected) in cases {
            let expected = if text == "64Mi" {
                expected * 1_000
            } else {
                expected
            };
            assert_eq!(milli(text), Some(expected), "{text}");
        }
        for bad in ["", "x", "1.2.3", "-1", "5Xi", "e3", "."] {
            assert_eq!(milli(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_cgroup_has_the_limits_of_the_container() {
        let given =
            json!({ "limits": { "memory": "64Mi", "cpu": "500m" }, "requests": { "cpu": "1" } });
        let expected = [
            ("pids.max", "4096"),
            ("memory.max", "67108864"),
            ("memory.swap.max", "0"),
            ("memory.oom.group", "1"),
            ("cpu.max", "50000 100000"),
            ("cpu.weight", "100"),
        ];
        let expected = expected.map(|(file, text)| (file, text.to_owned()));
        assert_eq!(limits(&given).unwrap().0, expected);
        let none = [("pids.max", "4096".to_owned())];
        assert_eq!(limits(&Value::Null).unwrap().0, none);
    }

    #[test]
    fn a_wrong_quantity_is_refused_with_its_path() {
        let error = limits(&json!({ "limits": { "cpu": "lots" } })).unwrap_err();
        let message = "spec.containers[0].resources.limits.cpu: is not a quantity";
        assert_eq!(error.to_string(), message);
    }
}
