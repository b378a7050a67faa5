//! The rules: functions from text to findings.

use std::fmt;

use crate::{rust::*, *};

/// A violation of a rule, with its position.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub file: String,
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

pub fn find(findings: &mut Vec<Finding>, file: &str, line: usize, what: impl Into<String>) {
    findings.push(Finding { file: file.to_owned(), line, what: what.into() });
}

pub fn rank(module: &str) -> Option<u8> {
    RANKS.iter().find(|(name, _)| *name == module).map(|(_, rank)| *rank)
}

/// An import goes to a lower rank, stays in its module, or is an exception with a reason.
pub fn imports(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
    let home = module_path(file);
    let Some(from) = home.first() else { return };
    let Some(own) = rank(from) else {
        return find(findings, file, 1, format!("module {from} has no rank"));
    };
    for (line, path) in paths(&rust.code) {
        let Some(to) = crate_module(&path, &home) else { continue };
        let Some(other) = rank(to) else { continue };
        let allowed = SIBLINGS.iter().any(|(a, b, _)| a == from && *b == to);
        if to != from && other >= own && !allowed {
            let what = format!("{from} (rank {own}) names {to} (rank {other})");
            find(findings, file, line, what);
        }
    }
}

/// The top-level module of a path, seen from a file with the module `home`.
pub fn crate_module<'p>(path: &'p [String], home: &[String]) -> Option<&'p str> {
    match path.first()?.as_str() {
        "crate" | "peregrine" => path.get(1).map(String::as_str),
        "super" => {
            let ups = path.iter().take_while(|step| *step == "super").count();
            if ups < home.len() { None } else { path.get(ups).map(String::as_str) }
        }
        _ => None,
    }
}

/// `src/op/send.rs` is `op::send`; `src/op/mod.rs` is `op`; `src/lib.rs` is empty.
pub fn module_path(file: &str) -> Vec<String> {
    let inner = file.trim_start_matches("src/").trim_end_matches(".rs");
    let steps = inner.split('/').filter(|step| *step != "mod" && *step != "lib");
    steps.map(str::to_owned).collect()
}

pub fn modules_have_ranks(lib: &str, findings: &mut Vec<Finding>) {
    for (number, line) in lib.lines().enumerate() {
        let rest = line.trim().trim_start_matches("pub ");
        let Some(name) = rest.strip_prefix("mod ").and_then(|name| name.strip_suffix(';')) else {
            continue;
        };
        if rank(name).is_none() {
            find(findings, "src/lib.rs", number + 1, format!("module {name} has no rank"));
        }
    }
}

/// Modules below the driver name no runtime, socket, thread, clock or randomness.
pub fn driver_names(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
    let home = module_path(file);
    if home.first().and_then(|module| rank(module)).is_some_and(|rank| rank >= DRIVER_RANK) {
        return;
    }
    for (line, path) in paths(&rust.code) {
        let text = path.join("::");
        let is_exception = DRIVER_EXCEPTIONS.iter().any(|(allowed, _)| text.starts_with(allowed));
        let is_named =
            |banned: &&&[&str]| path.windows(banned.len()).any(|steps| steps == **banned);
        if !is_exception && let Some(banned) = DRIVER_ONLY.iter().find(is_named) {
            find(findings, file, line, format!("{text}: {} is the driver's", banned.join("::")));
        }
    }
}

/// Files, functions and lines; in tests only lines.
pub fn sizes(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
    let lines = rust.lines_without_tests();
    if lines > FILE_LINES_MAX {
        find(findings, file, lines, format!("{lines} lines without tests"));
    }
    for function in functions(&rust.code) {
        if function.lines > FUNCTION_LINES_MAX {
            let what = format!("fn {} has {} lines", function.name, function.lines);
            find(findings, file, function.line, what);
        }
    }
    if LONG_LINES.iter().any(|(name, _)| *name == file) {
        return;
    }
    for (number, line) in rust.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            find(findings, file, number + 1, format!("{columns} columns"));
        }
    }
}

pub fn unsafe_outside_paths(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
    if UNSAFE_PATHS.iter().any(|(path, _)| file.starts_with(path)) {
        return;
    }
    for (line, path) in paths(&rust.code) {
        if path[0] == "unsafe" {
            find(findings, file, line, "unsafe outside its places");
        }
    }
}

/// A literal like `"1.0"` on a line with a comparison. Cards may state versions: that is data.
pub fn version_comparisons(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
    const COMPARE: &[&str] = &[
        "==",
        "!=",
        "=>",
        "eq(",
        "eq_ignore_ascii_case(",
        "starts_with(",
        "ends_with(",
        "contains(",
        "matches!",
        "strip_prefix(",
        "cmp(",
    ];
    let is_exempt = |(name, _): &(&str, &str)| *name == file;
    if file.starts_with("src/dialect/") || VERSION_PATHS.iter().any(is_exempt) {
        return;
    }
    for (number, (line, code)) in rust.with_strings.lines().zip(rust.code.lines()).enumerate() {
        let literals = line.split('"').skip(1).step_by(2);
        let versions: Vec<&str> = literals.filter(|text| is_version(text)).collect();
        if !versions.is_empty() && COMPARE.iter().any(|sign| code.contains(sign)) {
            find(findings, file, number + 1, format!("compares with {}", versions.join(", ")));
        }
    }
}

/// `Major.Minor`, with or without a patch number.
pub fn is_version(text: &str) -> bool {
    let numbers: Vec<&str> = text.split('.').collect();
    let is_number = |n: &&str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    (2..=3).contains(&numbers.len()) && numbers.iter().all(is_number)
}

/// The names in `limits! { … }`: a line `name: type = value;`.
pub fn limit_names(source: &str) -> Vec<String> {
    let rust = Rust::of(source);
    let Some(start) = rust.code.find("\nlimits! {") else { return Vec::new() };
    let body = &rust.code[start + 1..];
    let body = &body[..body.find("\n}").unwrap_or(body.len())];
    let fields = body.lines().filter(|line| line.contains('=') && line.trim().ends_with(';'));
    fields.filter_map(|line| Some(line.trim().split_once(':')?.0.to_owned())).collect()
}

/// The functions with `#[test]` above them.
pub fn test_names(rust: &Rust) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in rust.all_code.lines() {
        let line = line.trim();
        is_test |= line.contains("#[test]");
        let Some(at) = word(line, "fn") else {
            is_test &= line.is_empty() || line.starts_with('#');
            continue;
        };
        if std::mem::take(&mut is_test) {
            let name = line[at + 2..].trim_start();
            let end = name.find(|c: char| !is_ident(c)).unwrap_or(name.len());
            names.push(name[..end].to_owned());
        }
    }
    names
}

pub fn limits_tested(limits: &[String], tests: &[String], findings: &mut Vec<Finding>) {
    for limit in limits.iter().filter(|limit| !tests.contains(limit)) {
        find(findings, "src/limits.rs", 1, format!("{limit} has no test of its name"));
    }
}

/// The public fields of a struct: `    pub name: type,`.
pub fn field_names(source: &str) -> Vec<String> {
    let fields = source.lines().filter_map(|line| line.strip_prefix("    pub ")?.split_once(": "));
    fields.map(|(name, _)| name.to_owned()).collect()
}

/// A row begins with the limit's name as code: ``| `name` |``.
pub fn limits_documented(limits: &[String], page: &str, findings: &mut Vec<Finding>) {
    let rows: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
        .collect();
    for limit in limits.iter().filter(|limit| !rows.contains(&limit.as_str())) {
        find(findings, "docs/limits.md", 1, format!("{limit} has no row"));
    }
    for row in rows.iter().filter(|row| !limits.iter().any(|limit| limit == *row)) {
        find(findings, "docs/limits.md", 1, format!("{row} is no limit"));
    }
}

/// The dialects: the lines of `dialects! { ... }`.
pub fn dialect_names(source: &str) -> Vec<String> {
    let rust = Rust::of(source);
    let Some((_, list)) = rust.code.split_once("\ndialects! {") else { return Vec::new() };
    let list = list.split('}').next().unwrap_or_default();
    let names = list.split(',').map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

pub fn transcripts(dialects: &[String], files: &[&str], findings: &mut Vec<Finding>) {
    for dialect in dialects {
        let folder = format!("tests/data/{dialect}/");
        if !files.iter().any(|file| file.starts_with(&folder)) {
            find(findings, "src/dialect/mod.rs", 1, format!("{dialect} has no {folder}"));
        }
    }
}

pub fn unfinished(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
    for (number, line) in rust.all_code.lines().enumerate() {
        for name in UNFINISHED_MACROS {
            if word(line, name.trim_end_matches('!')).is_some_and(|at| line[at..].starts_with(name))
            {
                find(findings, file, number + 1, *name);
            }
        }
    }
    for (number, line) in rust.text.lines().enumerate() {
        if word(line, UNFINISHED_WORD).is_some() {
            find(findings, file, number + 1, UNFINISHED_WORD);
        }
    }
}

/// Sources are the same on each machine and leave the choice of a registry to its client.
pub fn machine_names(file: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in text.lines().enumerate() {
        for path in MACHINE_PATHS.iter().filter(|path| names_path(line, path)) {
            find(findings, file, number + 1, format!("the machine path {path}"));
        }
        for host in REGISTRY_HOSTS.iter().filter(|host| line.contains(**host)) {
            find(findings, file, number + 1, format!("the registry {host}"));
        }
        let source = line.strip_prefix("source = ").filter(|_| file.ends_with("Cargo.lock"));
        if source.is_some_and(|source| source != CARGO_SOURCE) {
            find(findings, file, number + 1, "a package that is not from the registry");
        }
    }
}

/// True if an absolute path in `line` begins with `path`, which is not part of a longer one.
pub fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        let is_begin = !before.is_some_and(|c| is_ident(c) || ".-/}".contains(c));
        is_begin && !after.is_some_and(|c| is_ident(c) || c == '-')
    })
}
