//! Label selectors: requirements that labels satisfy all, or nothing at all.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::label_syntax::{key_errors, value_errors};
use crate::labels::LabelMap;
pub(crate) use crate::labels::Labels;
use crate::malformed::joined;

/// The operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

/// What one label must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

/// Labels that an object must have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Selector {
    /// Selects no object.
    Nothing,
    /// Selects the objects that satisfy all; without requirements, each object.
    All(Vec<Requirement>),
}

impl Operator {
    /// The operator by its name in a node selector.
    pub(crate) fn of_node(name: &str) -> Option<Self> {
        match name {
            "Gt" => Some(Self::Gt),
            "Lt" => Some(Self::Lt),
            _ => Self::of_labels(name),
        }
    }

    fn of_labels(name: &str) -> Option<Self> {
        match name {
            "In" => Some(Self::In),
            "NotIn" => Some(Self::NotIn),
            "Exists" => Some(Self::Exists),
            "DoesNotExist" => Some(Self::DoesNotExist),
            _ => None,
        }
    }
}

impl Requirement {
    /// The requirement of the field `path`; an error has all texts of what is wrong.
    pub(crate) fn new(
        path: &str,
        key: &str,
        operator: Operator,
        values: &[String],
    ) -> Result<Self, String> {
        let dot = if path.is_empty() { "" } else { "." };
        let mut errors = Vec::new();
        let wrong = key_errors(key);
        if !wrong.is_empty() {
            let wrong = wrong.join("; ");
            errors.push(format!("{path}{dot}key: Invalid value: {key:?}: {wrong}"));
        }
        let at = format!("{path}{dot}values");
        errors.extend(count_error(&at, operator, values));
        if matches!(operator, Operator::Gt | Operator::Lt) {
            for (index, value) in values.iter().enumerate() {
                if integer(value).is_none() {
                    errors.push(format!("{at}[{index}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"));
                }
            }
        }
        for (index, value) in values.iter().enumerate() {
            let wrong = value_errors(value);
            if !wrong.is_empty() {
                let wrong = wrong.join("; ");
                errors.push(format!(
                    "{at}[{index}][{key}]: Invalid value: {value:?}: {wrong}"
                ));
            }
        }
        if !errors.is_empty() {
            return Err(joined(&errors));
        }
        Ok(Self {
            key: key.to_owned(),
            operator,
            values: values.to_vec(),
        })
    }

    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = |value: &String| self.values.contains(value);
        match self.operator {
            Operator::In => value.is_some_and(is_listed),
            Operator::NotIn => !value.is_some_and(is_listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compares(value, |label, bound| label > bound),
            Operator::Lt => self.compares(value, |label, bound| label < bound),
        }
    }

    fn compares(&self, value: Option<&String>, compare: fn(i64, i64) -> bool) -> bool {
        let label = value.and_then(|value| integer(value));
        let bound = self.values.first().and_then(|value| integer(value));
        label
            .zip(bound)
            .is_some_and(|(label, bound)| compare(label, bound))
    }
}

/// An integer as Go parses it: with an optional sign.
fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn count_error(at: &str, operator: Operator, values: &[String]) -> Option<String> {
    let (is_wrong, words) = match operator {
        Operator::In | Operator::NotIn => (
            values.is_empty(),
            "for 'in', 'notin' operators, values set can't be empty",
        ),
        Operator::Exists | Operator::DoesNotExist => (
            !values.is_empty(),
            "values set must be empty for exists and does not exist",
        ),
        Operator::Gt | Operator::Lt => (
            values.len() != 1,
            "for 'Gt', 'Lt' operators, exactly one value is required",
        ),
    };
    let shown: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
    let shown = if values.is_empty() {
        "null".to_owned()
    } else {
        format!("[{}]", shown.join(","))
    };
    is_wrong.then(|| format!("{at}: Invalid value: {shown}: {words}"))
}

impl Selector {
    /// The selector of a field: nothing where it is missing. An error has Kubernetes' text.
    pub(crate) fn of(field: Option<&LabelSelector>) -> Result<Self, String> {
        let Some(field) = field else {
            return Ok(Self::Nothing);
        };
        let mut all = Vec::new();
        for (key, value) in field.match_labels.iter().flatten() {
            let values = std::slice::from_ref(value);
            all.push(Requirement::new("", key, Operator::In, values)?);
        }
        for expression in field.match_expressions.iter().flatten() {
            let name = &expression.operator;
            let operator = Operator::of_labels(name)
                .ok_or_else(|| format!("{name:?} is not a valid label selector operator"))?;
            let values = expression.values.as_deref().unwrap_or_default();
            all.push(Requirement::new("", &expression.key, operator, values)?);
        }
        Ok(Self::All(all))
    }

    /// The selector of these labels, which are not validated.
    pub(crate) fn of_labels(labels: &LabelMap) -> Self {
        let requirement = |(key, value): (&String, &String)| Requirement {
            key: key.clone(),
            operator: Operator::In,
            values: vec![value.clone()],
        };
        Self::All(labels.iter().map(requirement).collect())
    }

    /// A requirement that a label has one of `values`, which are not validated.
    pub(crate) fn one_of(key: &str, values: &[String]) -> Requirement {
        Requirement {
            key: key.to_owned(),
            operator: Operator::In,
            values: values.to_vec(),
        }
    }

    /// Adds the requirements of `other`, if it has requirements at all.
    pub(crate) fn and(&mut self, other: Self) {
        if let (Self::All(mine), Self::All(more)) = (self, other) {
            mine.extend(more);
        }
    }

    /// The keys of labels that it reads.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let all = match self {
            Self::Nothing => &[],
            Self::All(all) => all.as_slice(),
        };
        all.iter().map(|requirement| requirement.key.as_str())
    }

    /// Whether it selects each object.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::All(all) if all.is_empty())
    }

    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(all) => all.iter().all(|requirement| requirement.matches(labels)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
        let owned = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        owned.collect()
    }

    fn holds(operator: Operator, values: &[&str], of: &[(&str, &str)]) -> bool {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        let requirement = Requirement::new("", "k", operator, &values).unwrap();
        requirement.matches(&labels(of))
    }

    #[test]
    fn operators_on_present_and_missing_labels() {
        assert!(holds(Operator::In, &["a", "b"], &[("k", "b")]));
        assert!(!holds(Operator::In, &["a"], &[]));
        assert!(holds(Operator::NotIn, &["a"], &[]));
        assert!(!holds(Operator::NotIn, &["a"], &[("k", "a")]));
        assert!(holds(Operator::Exists, &[], &[("k", "")]));
        assert!(holds(Operator::DoesNotExist, &[], &[("x", "")]));
        assert!(holds(Operator::Gt, &["4"], &[("k", "5")]));
        assert!(!holds(Operator::Gt, &["4"], &[("k", "4")]));
        assert!(!holds(Operator::Lt, &["4"], &[("k", "x")]));
        assert!(!holds(Operator::Lt, &["4"], &[]));
    }

    #[test]
    fn a_missing_selector_selects_nothing_and_an_empty_one_all() {
        let none = Selector::of(None).unwrap();
        assert!(!none.matches(&labels(&[])) && !none.is_empty());
        let all = Selector::of(Some(&LabelSelector::default())).unwrap();
        assert!(all.matches(&labels(&[])) && all.is_empty());
    }

    #[test]
    fn an_invalid_requirement_names_its_field() {
        let error = Requirement::new("[0]", "k", Operator::Gt, &["-2".to_owned()]).unwrap_err();
        assert!(error.starts_with("[0].values[0][k]: Invalid value: \"-2\": a valid label"));
        let error = Requirement::new("", "k", Operator::In, &[]).unwrap_err();
        assert!(error.starts_with("values: Invalid value: null: for 'in'"));
    }
}
