//! The size of failures.

use dormouse_cluster::App;

use super::*;

#[test]
fn a_failure_names_the_first_errors_and_counts_the_others() {
    let errors = |count| -> Vec<FieldError> {
        let fields = (0..count).map(|number| format!("spec.ports[{number}]"));
        fields
            .map(|field| FieldError::required(field, "is required"))
            .collect()
    };
    let failed = |count| Failure::invalid::<App>("web", &errors(count)).status();
    let causes = |status: &Value| status["details"]["causes"].as_array().unwrap().len();
    let all = failed(CAUSES_MAX);
    assert_eq!(causes(&all), CAUSES_MAX);
    assert!(!all["message"].as_str().unwrap().contains("more errors"));
    let some = failed(100_000);
    assert_eq!(causes(&some), CAUSES_MAX);
    let message = some["message"].as_str().unwrap();
    assert!(message.ends_with("; and 99950 more errors"), "{message}");
    assert!(some.to_string().len() < 10_000);
}
