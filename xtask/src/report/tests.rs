//! Bounds, table and file of a report.

use super::*;

#[test]
fn a_bound_applies_to_the_value_or_to_the_ratio() {
    let row = Row::measured("wake p50", 40.0, "ms").against(80.0);
    assert_eq!(row.ratio, Some(0.5));
    assert!(row.clone().must(Bound::AtMost(50.0)).reached);
    assert!(!row.clone().must(Bound::AtLeast(50.0)).reached);
    assert!(row.clone().must(Bound::RatioAtMost(0.5)).reached);
    assert!(!row.must(Bound::RatioAtMost(0.4)).reached);
}

#[test]
fn a_ratio_without_a_peer_is_not_reached() {
    let row = Row::measured("rate", 1.0, "/s");
    assert!(!row.clone().must(Bound::RatioAtMost(1.0)).reached);
    assert!(!row.against(0.0).must(Bound::RatioAtMost(1.0)).reached);
}

#[test]
fn nan_reaches_no_bound() {
    let row = Row::measured("rate", f64::NAN, "/s");
    assert!(!row.clone().must(Bound::AtLeast(0.0)).reached);
    assert!(!row.must(Bound::AtMost(0.0)).reached);
}

#[test]
fn the_columns_of_the_table_are_aligned() {
    let mut report = Report::new("wake");
    report.push(
        Row::measured("p50", 12.0, "ms")
            .against(24.0)
            .must(Bound::AtMost(20.0)),
    );
    report.push(Row::claim("the body is right", false, "404"));
    let lines: Vec<String> = report.to_string().lines().map(str::to_owned).collect();
    assert_eq!(
        lines[0],
        "   wake               value      peer    ratio  must"
    );
    assert_eq!(
        lines[1],
        "✓  p50                12.000 ms  24.000  0.50   ≤ 20"
    );
    assert_eq!(
        lines[2],
        "✗  the body is right  404                       holds"
    );
}

#[test]
fn the_file_has_every_field_and_a_missed_bound_is_an_error() {
    let mut report = Report::new("wake");
    report.push(
        Row::measured("p50", 12.0, "ms")
            .against(24.0)
            .must(Bound::RatioAtMost(0.9)),
    );
    report.push(Row::claim("the body is right", false, "404"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let error = report.finish(Some(&path)).unwrap_err();
    assert_eq!(error.to_string(), "wake: not reached: the body is right");
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let expected = serde_json::json!({"name": "wake", "rows": [
        {"name": "p50", "value": 12.0, "unit": "ms", "peer": 24.0, "ratio": 0.5,
         "must": {"ratioAtMost": 0.9}, "reached": true},
        {"name": "the body is right", "value": "404", "unit": "", "peer": null, "ratio": null,
         "must": "holds", "reached": false},
    ]});
    assert_eq!(written, expected);
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let error = Report::new("wake")
        .finish(Some(Path::new("/no/such/folder/report")))
        .unwrap_err();
    assert_eq!(error.to_string(), "failed to write /no/such/folder/report");
}
