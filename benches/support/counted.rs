//! Counts the instructions of cases by callgrind, and checks them against their ceilings.

use std::process::Command;

/// Instructions of a whole run of `count` rounds, as reported by callgrind.
fn instructions(case: &str, count: u64) -> u64 {
    let me = std::env::current_exe().expect("own path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(me)
        .args([case, &count.to_string()])
        .output()
        .expect("valgrind is installed");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let line = log.lines().find(|line| line.contains("Collected :")).expect("a count");
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

/// Counts each case, or only the named one: instructions per request at most, requests in one
/// input. `-- CASE COUNT` runs one without valgrind.
pub fn main(cases: &[(&str, u64, u64)], run: fn(&str, u64)) {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let [case, count] = &args[..] {
        return run(case, count.parse().expect("a count"));
    }
    let mut above = 0;
    for &(case, ceiling, requests) in cases {
        if args.first().is_some_and(|only| only != case) {
            continue;
        }
        let (few, many) = (100, 600);
        let spent = instructions(case, many) - instructions(case, few);
        let each = spent / (many - few) / requests;
        let verdict = if each <= ceiling { "ok" } else { "ABOVE" };
        above += u32::from(each > ceiling);
        println!("{case:20} {each:>8} instructions per request (ceiling {ceiling}) {verdict}");
    }
    assert_eq!(above, 0, "cases above their ceilings");
}
