//! Each rule has a finding in a bad snippet, and none in a good one.

use crate::{rules::*, rust::*, tree::*, *};

/// The findings of a rule on a snippet, each as `line: what`.
fn run(rule: fn(&str, &Rust, &mut Vec<Finding>), file: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    rule(file, &Rust::of(text), &mut findings);
    findings.iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
}

fn lines(findings: &[String]) -> Vec<&str> {
    findings.iter().filter_map(|finding| finding.split(':').next()).collect()
}

#[test]
fn upward_import_is_reported() {
    for bad in [
        "use crate::net::Server;",
        "use crate::{json::Value, net::Server};",
        "fn f() { crate :: engine\n:: Conn::new() }",
        "pub use super::super::binding::route;",
        "fn f() { $crate::op::f() }",
        "use peregrine::cli;",
    ] {
        assert_eq!(run(imports, "src/store/page.rs", bad).len(), 1, "{bad}");
    }
    let multi = "use crate::{\n    json::Value,\n    net::{self},\n};";
    assert_eq!(run(imports, "src/store/page.rs", multi), ["3: store (rank 4) names net (rank 9)"]);
}

#[test]
fn sibling_import_is_reported() {
    assert_eq!(run(imports, "src/op/send.rs", "use crate::binding::ServerConfig;").len(), 1);
    assert_eq!(run(imports, "src/http/head.rs", "use crate::json::Value;").len(), 1);
    for good in [
        "use crate::op::Core;",
        "use super::Core;",
        "use crate::{model::Task, store::Store};",
        "// use crate::net::Server;",
        "/* use crate::net; /* crate::net */ crate::net */",
        "const C: &str = \"crate::net\";",
        "const C: &str = r#\"\"crate::net\"#;",
        "#[cfg(test)]\nmod tests { use crate::net::Server; }",
        "#[cfg(test)]\nuse crate::net::Server;",
        "use std::net::Ipv4Addr;",
    ] {
        assert_eq!(run(imports, "src/op/send.rs", good), [""; 0], "{good}");
    }
    let after = "#[cfg(test)]\nuse crate::net::a;\nuse crate::net::b;";
    assert_eq!(lines(&run(imports, "src/op/send.rs", after)), ["3"]);
    assert_eq!(run(imports, "src/sse/frame.rs", "use crate::json::write;"), [""; 0]);
}

#[test]
fn module_without_rank_is_reported() {
    let mut findings = Vec::new();
    modules_have_ranks("pub mod json;\npub mod util;\nmod helper;\n", &mut findings);
    assert_eq!(findings.iter().map(|f| f.line).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(run(imports, "src/util.rs", "").len(), 1);
}

#[test]
fn runtime_or_clock_below_the_driver_is_reported() {
    for bad in [
        "use tokio::net::TcpStream;",
        "fn f() { let t = std::time::Instant::now(); }",
        "fn f() { let t = Instant::now(); }",
        "use std::time::{Duration, SystemTime};",
        "use std::{\n    fmt,\n    net::TcpStream,\n};",
        "use std::net::{Ipv6Addr, TcpStream};",
        "use std::{thread, fmt};",
        "fn f() { getrandom::fill(&mut b); }",
    ] {
        assert_eq!(run(driver_names, "src/engine/conn.rs", bad).len(), 1, "{bad}");
        assert_eq!(run(driver_names, "src/net/worker.rs", bad), [""; 0], "{bad}");
    }
    for good in ["// tokio", "use std::net::Ipv6Addr;", "use std::time::Duration;"] {
        assert_eq!(run(driver_names, "src/http/authority.rs", good), [""; 0], "{good}");
    }
}

#[test]
fn long_file_is_reported() {
    let (full, long) = ("\n".repeat(FILE_LINES_MAX), "\n".repeat(FILE_LINES_MAX + 1));
    assert_eq!(run(sizes, "src/a.rs", &full), [""; 0]);
    assert_eq!(run(sizes, "src/a.rs", &long).len(), 1);
    let tests = format!("{full}#[cfg(test)]\nmod tests {{{full}}}\n");
    assert_eq!(run(sizes, "src/a.rs", &tests).len(), 1, "the last line is code");
    let tests = format!("#[cfg(test)]\nmod tests {{{full}}}{full}");
    assert_eq!(run(sizes, "src/a.rs", &tests), [""; 0]);
}

#[test]
fn long_function_is_reported() {
    let body = |lines: usize| "    let brace = ('{', \"}\\\"}\", '\\'', b'}');\n".repeat(lines);
    let function = |lines| format!("\nfn f<'a>(x: [u8; 2]) -> &'a str {{\n{}}}\n", body(lines));
    assert_eq!(run(sizes, "src/a.rs", &function(FUNCTION_LINES_MAX - 2)), [""; 0]);
    let found = run(sizes, "src/a.rs", &function(FUNCTION_LINES_MAX - 1));
    assert_eq!(found, [format!("2: fn f has {} lines", FUNCTION_LINES_MAX + 1)]);
    let declared =
        format!("trait T {{ fn f(&self);\n{}fn g(); }}", "\n".repeat(FUNCTION_LINES_MAX));
    assert_eq!(run(sizes, "src/a.rs", &declared), [""; 0]);
    let nested = format!("mod m {{\nimpl A {{\n{}}}\n}}", function(FUNCTION_LINES_MAX));
    assert_eq!(lines(&run(sizes, "src/a.rs", &nested)), ["4"]);
}

#[test]
fn long_line_is_reported() {
    let wide = |columns: usize| format!("//{}\n", "é".repeat(columns - 2));
    assert_eq!(run(sizes, "src/a.rs", &wide(COLUMNS_MAX)), [""; 0]);
    assert_eq!(run(sizes, "src/a.rs", &wide(COLUMNS_MAX + 1)).len(), 1);
    assert_eq!(run(sizes, LONG_LINES[0].0, &wide(COLUMNS_MAX + 1)), [""; 0]);
}

#[test]
fn unsafe_code_outside_allowed_paths_is_reported() {
    assert_eq!(run(unsafe_outside_paths, "src/json/a.rs", "fn f() { unsafe { g() } }").len(), 1);
    assert_eq!(run(unsafe_outside_paths, "src/json/a.rs", "unsafe impl Send for A {}").len(), 1);
    assert_eq!(run(unsafe_outside_paths, "src/json/a.rs", "// unsafe\nfn unsafe_f() {}"), [""; 0]);
    assert_eq!(run(unsafe_outside_paths, "src/ffi/mod.rs", "unsafe fn f() {}"), [""; 0]);
}

#[test]
fn version_comparison_outside_dialects_is_reported() {
    for bad in [
        "if version == \"1.0\" {}",
        "match v { \"0.3\" => 1, _ => 2 }",
        "if v.starts_with(\"0.2\") {}",
        "if value.str_eq(\"1.0.1\") {}",
    ] {
        assert_eq!(run(version_comparisons, "src/binding/jsonrpc.rs", bad).len(), 1, "{bad}");
        assert_eq!(run(version_comparisons, "src/dialect/version.rs", bad), [""; 0]);
    }
    for good in ["Endpoint { version: \"1.0\" }", "// v == \"1.0\"", "if v == \"a.b\" {}"] {
        assert_eq!(run(version_comparisons, "src/binding/cards.rs", good), [""; 0], "{good}");
    }
}

const LIMITS: &str = "macro_rules! limits { ($x:tt) => {} }\n\nlimits! {\n\
    \x20   /// Bytes: x = 1;\n\
    \x20   head_max: usize = 16 * 1024;\n    idle_ms: u64 = 10;\n}\nconst A: u64 = 1;\n";

#[test]
fn limit_without_test_is_reported() {
    let limits = limit_names(LIMITS);
    assert_eq!(limits, ["head_max", "idle_ms"]);
    let tests = "#[test]\n/// Why.\n#[should_panic]\nfn head_max() {}\n\nfn idle_ms() {}\n\
        #[test]\nfn idle_ms_and_more() {}\n// #[test]\nfn idle_ms() {}\n";
    let tests = test_names(&Rust::of(tests));
    assert_eq!(tests, ["head_max", "idle_ms_and_more"]);
    let mut findings = Vec::new();
    limits_tested(&limits, &tests, &mut findings);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].what.starts_with("idle_ms "));
}

#[test]
fn limit_without_documentation_row_is_reported() {
    let page = "| name |\n|---|\n| `head_max` | 16 KiB |\n| `old_max` | 1 |\nidle_ms\n";
    let mut findings = Vec::new();
    limits_documented(&limit_names(LIMITS), page, &mut findings);
    let what: Vec<&str> = findings.iter().map(|f| f.what.as_str()).collect();
    assert_eq!(what, ["idle_ms has no row", "old_max is no limit"]);
}

#[test]
fn dialect_without_transcripts_is_reported() {
    let list =
        "macro_rules! dialects {}\n\ndialects! {\n    standard,\n    // no,\n    other,\n}\n";
    let dialects = dialect_names(list);
    assert_eq!(dialects, ["standard", "other"]);
    let mut findings = Vec::new();
    let files = ["tests/data/standard/send.txt", "tests/data/other.toml"];
    transcripts(&dialects, &files, &mut findings);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].what.starts_with("other "));
}

#[test]
fn unfinished_code_is_reported() {
    for name in UNFINISHED_MACROS {
        let bad = format!("fn f() {{ {name}() }}");
        assert_eq!(run(unfinished, "src/a.rs", &bad).len(), 1, "{bad}");
        let tested = format!("#[cfg(test)]\nmod tests {{ fn f() {{ std::{name}() }} }}");
        assert_eq!(run(unfinished, "src/a.rs", &tested).len(), 1, "{tested}");
        assert_eq!(run(unfinished, "src/a.rs", &format!("// {name}")), [""; 0]);
    }
    assert_eq!(run(unfinished, "src/a.rs", &format!("// {UNFINISHED_WORD}: x")).len(), 1);
}

#[test]
fn machine_path_or_registry_is_reported() {
    let check = |file: &str, text: &str| {
        let mut findings = Vec::new();
        machine_names(file, text, &mut findings);
        findings.len()
    };
    for path in MACHINE_PATHS {
        for bad in [format!("cd {path}/x"), format!("\"{path}\""), format!("x={path}")] {
            assert_eq!(check("docs/perf.md", &bad), 1, "{bad}");
        }
        for good in [format!("docs{path}/x"), format!("$A{path}"), format!("{path}ing")] {
            assert_eq!(check("docs/perf.md", &good), 0, "{good}");
        }
    }
    for host in REGISTRY_HOSTS {
        assert_eq!(check("tests/clients/run.sh", &format!("pip {host} x")), 1, "{host}");
    }
    assert_eq!(check("Cargo.lock", &format!("source = {CARGO_SOURCE}")), 0);
    assert_eq!(check("fuzz/Cargo.lock", "source = \"registry+https://mirror/\"\n"), 1);
}

#[test]
fn ignore_patterns_match_only_their_files() {
    for (pattern, name) in
        [("/target", "target"), ("/a/.venv*", "a/.venv-1"), ("*.pyc", "a/b.pyc"), ("x", "a/x")]
    {
        assert!(is_match(pattern, name), "{pattern}");
    }
    for (pattern, name) in [("/target", "fuzz/target"), ("x", "xx"), ("", "a"), ("*.pyc", "a")] {
        assert!(!is_match(pattern, name), "{pattern}");
    }
}

#[test]
fn cfg_test_modules_are_recognized_as_test_files() {
    let text = "#[cfg(test)]\n#[allow(x)]\nmod tests;\n#[cfg(test)]\nmod a { use b; }\nmod b;";
    assert_eq!(test_files("src/store/mod.rs", text), ["src/store/tests.rs"]);
    assert_eq!(test_files("src/lib.rs", text), ["src/tests.rs"]);
    assert_eq!(test_files("src/store/page.rs", text), ["src/store/page/tests.rs"]);
    assert_eq!(test_files("src/store/mod.rs", "mod tests;"), [""; 0]);
}

#[test]
fn literals_and_comments_are_blanked() {
    let text = "let a = 'x'; let b: &'static str = \"\\\\\"; let c = b\"{\"; // }\n\
        let d = br##\"\"#}\"##; let e = '\\u{7d}'; let f = 'é'; for_r\"x\"; /* } */ g()";
    let (code, strings) = blank(text);
    assert_eq!(code.matches(['{', '}']).count(), 0, "{code}");
    assert_eq!(code.lines().count(), 2);
    assert!(code.contains("'static") && code.ends_with("g()"));
    assert!(strings.contains("b\"{\"") && !strings.contains("/*"));
}

#[test]
fn comment_with_word_for_people_is_reported() {
    let text = "// a client\n/// who asks\nlet who = 1; // whoever\n";
    let mut findings = Vec::new();
    style::people_in_comments("src/op/send.rs", text, &mut findings);
    assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2]);
}

#[test]
fn tuple_parameter_is_reported() {
    for bad in [
        "fn f((a, b): (u8, u8)) {}",
        "fn f<'a, T: Fn(u8) -> u8>(a: &'a T, with: &mut (u8, u8)) -> u8 { 0 }",
        "trait T { fn f(&self, (a, b): Pair); }",
    ] {
        assert_eq!(run(style::tuple_parameters, "src/op/send.rs", bad).len(), 1, "{bad}");
    }
    for good in [
        "fn f(a: u8) -> (u8, u8) { (a, a) }",
        "fn f(a: (), b: &(dyn Any + Send), c: impl Fn(u8, u8) -> u8) {}",
        "fn f(a: Vec<(u8, u8)>) { for (a, b) in a {} }",
    ] {
        assert_eq!(run(style::tuple_parameters, "src/op/send.rs", good), [""; 0], "{good}");
    }
}

#[test]
fn identifier_with_a_replaced_word_is_reported() {
    for bad in ["let is_told = true;", "struct SaidName;", "fn f(whose: u8) {}"] {
        assert_eq!(run(style::identifiers_are_plain, "src/a.rs", bad).len(), 1, "{bad}");
    }
    let good = "let message = \"nobody\"; // told\nlet aforesaid = 1;";
    assert_eq!(run(style::identifiers_are_plain, "src/a.rs", good), [""; 0]);
}

#[test]
fn long_or_quaint_test_name_is_reported() {
    let text = format!("#[test]\nfn {}() {{}}\n#[test]\nfn short() {{}}", "a".repeat(61));
    assert_eq!(run(style::test_names_are_plain, "tests/cli/run.rs", &text).len(), 1);
    let text =
        "#[test]\nfn client_waits_behind_everybody() {}\n#[test]\nfn placeholder_is_replaced() {}";
    assert_eq!(run(style::test_names_are_plain, "tests/cli/run.rs", text).len(), 2);
}
