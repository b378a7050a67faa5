//! `docs/cli-compliance.yaml` is consistent: its sums are right, and the tests that it names exist.

use std::{collections::BTreeMap, fs, path::Path};

/// The values of one requirement.
type Row<'t> = BTreeMap<&'t str, &'t str>;

fn rows(report: &str) -> BTreeMap<&str, Row<'_>> {
    let mut rows: BTreeMap<&str, Row<'_>> = BTreeMap::new();
    let mut id = "";
    let body = report.split("\nrequirements:\n").nth(1).unwrap();
    for line in body.split("\n\n").next().unwrap().lines() {
        match line.trim().split_once(':') {
            Some((name, "")) if name.starts_with("A2ACLI_") => id = name,
            Some((name, value)) => {
                rows.entry(id).or_default().insert(name, value.trim().trim_matches('"'));
            }
            None => panic!("{line}"),
        }
    }
    rows
}

#[test]
fn cli_compliance_report_tests_exist_and_sums_match() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let report = fs::read_to_string(root.join("docs/cli-compliance.yaml")).unwrap();
    let rows = rows(&report);
    assert_eq!(rows.len(), 66);
    for (id, row) in &rows {
        let (status, note, evidence) = (row["status"], row["note"], row["evidence"]);
        assert!(status == "pass" || note != "null", "{id} has no note");
        assert!(status != "pass" || evidence != "null", "{id} has no evidence");
        let Some(tests) = evidence.strip_prefix("tests/cli::") else { continue };
        for test in tests.split(", ").map(|test| test.split(' ').next().unwrap()) {
            let (file, name) = test.split_once("::").unwrap();
            let text = fs::read_to_string(root.join(format!("tests/cli/{file}.rs"))).unwrap();
            assert!(text.contains(&format!("fn {name}(")), "{id}: there is no {test}");
        }
    }
    for tier in ["1", "2", "3"] {
        let of_tier = || rows.values().filter(|row| row["tier"] == tier);
        let count = |status: &str| of_tier().filter(|row| row["status"] == status).count();
        let sums = format!(
            "tier_{tier}: {{total: {}, pass: {}, partial: {}, fail: {}, not_measured: {}, na: {},",
            of_tier().count(),
            count("pass"),
            count("partial"),
            count("fail"),
            count("not_measured"),
            count("na"),
        );
        assert!(report.contains(&sums), "{sums}");
    }
}
