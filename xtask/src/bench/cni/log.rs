//! Timings from the agent's log.

use serde_json::Value;

/// The fields of a JSON log line with this message.
fn fields(line: &str, message: &str) -> Option<Value> {
    let mut line: Value = serde_json::from_str(line).ok()?;
    let fields = line.get_mut("fields")?.take();
    (fields.get("message")? == message).then_some(fields)
}

/// A number; the log writes 128-bit ones as text.
fn number(fields: &Value, name: &str) -> Option<f64> {
    let field = fields.get(name)?;
    let text = field.as_str().and_then(|text| text.parse().ok());
    field.as_f64().or(text)
}

/// Milliseconds that each ADD waited for the kernel to process its netlink messages: the least time in which any plugin
/// could create the same links.
pub(super) fn kernel_ms(log: &str) -> Vec<f64> {
    let adds = log.lines().filter_map(|line| fields(line, "pod connected"));
    let sum = |add: Value| {
        let stages = ["host_us", "pod_us", "settle_us"];
        let stages = stages.iter().map(|name| number(&add, name));
        stages.sum::<Option<f64>>()
    };
    adds.filter_map(sum).map(|us| us / 1e3).collect()
}

/// The number of pods that the last start recovered, and its milliseconds.
pub(super) fn recovery(log: &str) -> Option<(f64, f64)> {
    let mut lines = log.lines().rev();
    let found = lines.find_map(|line| fields(line, "recovered the node's pods"))?;
    Some((number(&found, "pods")?, number(&found, "took_us")? / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_names() {
        let log = r#"{"fields":{"message":"pod connected","host_us":"400","pod_us":150,"settle_us":50}}
            {"fields":{"message":"recovered the node's pods","pods":2,"took_us":"1500"}}"#;
        assert_eq!(kernel_ms(log), [0.6]);
        assert_eq!(recovery(log), Some((2.0, 1.5)));
        assert_eq!(recovery("nothing"), None);
    }
}
