//! What a reviewer should not have to say: who may import whom, how long things may be, what may
//! be named where, and that every limit and every dialect has what belongs to it.
//!
//! Each rule is a function from text to findings, and has a twin under `rules_can_fail` that feeds
//! it a bad snippet. Words that a rule bans are spelled in two halves here, because this file is
//! checked as well.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod generated;

use std::{fmt, fs, path::Path, sync::LazyLock};

// --- The rules as data ---------------------------------------------------------------------------

/// Who may know whom: a module imports from lower ranks only (docs/architecture.md).
const RANKS: &[(&str, u8)] = &[
    ("main", 11),
    ("cli", 11),
    ("load", 10),
    ("net", 9),
    ("ffi", 9),
    ("cluster", 8),
    ("gateway", 7),
    ("engine", 6),
    ("client", 6),
    ("op", 5),
    ("binding", 5),
    ("dialect", 4),
    ("store", 4),
    ("push", 4),
    ("service", 3),
    ("agent", 3),
    ("model", 2),
    ("rpc", 2),
    ("json", 1),
    ("http", 1),
    ("sse", 1),
    ("ws", 1),
    ("pb", 1),
    ("limits", 0),
    ("fault", 0),
    ("waiter", 0),
];

/// Imports between modules of one rank: from, to, and why it is no way around the table.
const SIBLINGS: &[(&str, &str, &str)] = &[
    ("main", "cli", "the binary is one call of it"),
    ("agent", "service", "a turn carries the time and the key that the waist defines"),
    ("sse", "json", "the number of a frame is written by json's one number writer"),
];

/// The driver's rank: below it there is no runtime, socket, thread or clock.
const DRIVER_RANK: u8 = 9;

/// What only the driver may name, as paths.
const DRIVER_ONLY: &[&[&str]] = &[
    &["tokio"],
    &["socket2"],
    &["getrandom"],
    &["chacha20"],
    &["std", "net"],
    &["std", "thread"],
    &["Instant", "now"],
    &["SystemTime"],
];

/// Paths that look like the driver's and are not: path, and why.
const DRIVER_EXCEPTIONS: &[(&str, &str)] = &[
    ("std::net::IpAddr", "an address is data; reading one opens no socket"),
    ("std::net::Ipv4Addr", "an address is data; reading one opens no socket"),
    ("std::net::Ipv6Addr", "an address is data; reading one opens no socket"),
];

const FILE_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// Files with longer lines, and why.
const LONG_LINES: &[(&str, &str)] =
    &[("src/fault.rs", "a table with one row for each fault, which rustfmt skips")];

/// Folders where `unsafe` may stand, and why. Today the crate forbids it everywhere.
const UNSAFE_PLACES: &[(&str, &str)] = &[("src/ffi/", "a C interface has no other way")];

/// Files outside `dialect/` that compare a version, and why.
const VERSION_PLACES: &[(&str, &str)] =
    &[("src/rpc.rs", "the version of JSON-RPC itself, of which there is one")];

/// Macros and words that say that something is not finished.
const UNFINISHED_MACROS: &[&str] =
    &[concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")];
const UNFINISHED_WORD: &str = concat!("FIX", "ME");

/// Names of places on somebody's machine; a path begins with one of them.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk"), concat!("/tm", "p"), concat!("/ro", "ot"), concat!("/ho", "me")];

/// Hosts that a package manager chooses by itself.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("registry.npmjs", ".org"),
    concat!("registry.yarnpkg", ".com"),
    concat!("proxy.golang", ".org"),
    concat!("--index", "-url"),
    concat!("--extra-index", "-url"),
];

/// The one source of packages in a lock file.
const CARGO_SOURCE: &str = "\"registry+https://github.com/rust-lang/crates.io-index\"";

/// What is not read beside what `.gitignore` names: the history, and bytes that a fuzzer found.
const SKIPPED: &[&str] = &["/.git", "/fuzz/corpus"];

// --- The tests -----------------------------------------------------------------------------------

#[test]
fn imports_go_down() {
    let tree = &*TREE;
    let mut findings = Vec::new();
    for file in tree.sources() {
        imports(&file.name, &file.rust, &mut findings);
    }
    modules_have_ranks(&tree.text("src/lib.rs"), &mut findings);
    none(&findings);
}

#[test]
fn the_driver_alone_names_the_world() {
    check_sources(|file, rust, findings| driver_names(&file.name, rust, findings));
}

#[test]
fn files_functions_and_lines_are_short() {
    check_sources(|file, rust, findings| sizes(&file.name, rust, findings));
}

#[test]
fn unsafe_stays_in_its_places() {
    check_sources(|file, rust, findings| unsafe_places(&file.name, rust, findings));
}

#[test]
fn versions_are_compared_in_dialects_only() {
    check_sources(|file, rust, findings| version_comparisons(&file.name, rust, findings));
}

#[test]
fn limits_have_a_test_and_a_row() {
    let tree = &*TREE;
    let limits = limit_names(&tree.text("src/limits.rs"));
    assert!(limits.len() > 30, "the limits are no longer found: {limits:?}");
    let rust =
        tree.files.iter().filter(|file| file.is_rust() && !file.name.starts_with("tests/tidy/"));
    let tests: Vec<String> = rust.flat_map(|file| test_names(&file.rust)).collect();
    let mut findings = Vec::new();
    limits_tested(&limits, &tests, &mut findings);
    limits_documented(&limits, &tree.text("docs/limits.md"), &mut findings);
    none(&findings);
}

#[test]
fn dialects_have_transcripts() {
    let tree = &*TREE;
    let dialects = dialect_names(&tree.text("src/dialect/mod.rs"));
    assert!(!dialects.is_empty(), "the dialects are no longer found");
    let names: Vec<&str> = tree.files.iter().map(|file| file.name.as_str()).collect();
    let mut findings = Vec::new();
    transcripts(&dialects, &names, &mut findings);
    none(&findings);
}

#[test]
fn nothing_is_left_unfinished() {
    let tree = &*TREE;
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        unfinished(&file.name, &file.rust, &mut findings);
    }
    none(&findings);
}

#[test]
fn nothing_names_a_machine_or_a_registry() {
    let tree = &*TREE;
    let mut findings = Vec::new();
    for file in &tree.files {
        machine_names(&file.name, &file.text, &mut findings);
    }
    none(&findings);
}

fn check_sources(rule: impl Fn(&File, &Rust, &mut Vec<Finding>)) {
    let tree = &*TREE;
    let mut findings = Vec::new();
    for file in tree.sources() {
        rule(file, &file.rust, &mut findings);
    }
    none(&findings);
}

fn none(findings: &[Finding]) {
    let list: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(list.is_empty(), "{} finding(s):\n{}", list.len(), list.join("\n"));
}

// --- Rules ---------------------------------------------------------------------------------------

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    file: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

fn find(findings: &mut Vec<Finding>, file: &str, line: usize, what: impl Into<String>) {
    findings.push(Finding { file: file.to_owned(), line, what: what.into() });
}

fn rank(module: &str) -> Option<u8> {
    RANKS.iter().find(|(name, _)| *name == module).map(|(_, rank)| *rank)
}

/// An import goes to a lower rank, stays in its module, or is an exception with a reason.
fn imports(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
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

/// The top-level module that a path leads to, seen from a file whose module is `home`.
fn crate_module<'p>(path: &'p [String], home: &[String]) -> Option<&'p str> {
    match path.first()?.as_str() {
        "crate" | "peregrine" => path.get(1).map(String::as_str),
        "super" => {
            let ups = path.iter().take_while(|step| *step == "super").count();
            if ups < home.len() { None } else { path.get(ups).map(String::as_str) }
        }
        _ => None,
    }
}

/// `src/op/send.rs` is `op::send`; `src/op/mod.rs` is `op`; `src/lib.rs` is nothing.
fn module_path(file: &str) -> Vec<String> {
    let inner = file.trim_start_matches("src/").trim_end_matches(".rs");
    let steps = inner.split('/').filter(|step| *step != "mod" && *step != "lib");
    steps.map(str::to_owned).collect()
}

fn modules_have_ranks(lib: &str, findings: &mut Vec<Finding>) {
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

/// Below the driver nothing names a runtime, a socket, a thread, a clock or randomness.
fn driver_names(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
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

/// Files, functions and lines; tests count only for lines.
fn sizes(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
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

fn unsafe_places(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
    if UNSAFE_PLACES.iter().any(|(place, _)| file.starts_with(place)) {
        return;
    }
    for (line, path) in paths(&rust.code) {
        if path[0] == "unsafe" {
            find(findings, file, line, "unsafe outside its places");
        }
    }
}

/// A literal like `"1.0"` on a line that compares. Cards may state versions: that is data.
fn version_comparisons(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
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
    let is_place = |(name, _): &(&str, &str)| *name == file;
    if file.starts_with("src/dialect/") || VERSION_PLACES.iter().any(is_place) {
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
fn is_version(text: &str) -> bool {
    let numbers: Vec<&str> = text.split('.').collect();
    let is_number = |n: &&str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    (2..=3).contains(&numbers.len()) && numbers.iter().all(is_number)
}

/// The names in `limits! { … }`: a line `name: type = value;`.
fn limit_names(source: &str) -> Vec<String> {
    let rust = Rust::of(source);
    let Some(start) = rust.code.find("\nlimits! {") else { return Vec::new() };
    let body = &rust.code[start + 1..];
    let body = &body[..body.find("\n}").unwrap_or(body.len())];
    let fields = body.lines().filter(|line| line.contains('=') && line.trim().ends_with(';'));
    fields.filter_map(|line| Some(line.trim().split_once(':')?.0.to_owned())).collect()
}

/// The functions with `#[test]` above them.
fn test_names(rust: &Rust) -> Vec<String> {
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

fn limits_tested(limits: &[String], tests: &[String], findings: &mut Vec<Finding>) {
    for limit in limits.iter().filter(|limit| !tests.contains(limit)) {
        find(findings, "src/limits.rs", 1, format!("{limit} has no test of its name"));
    }
}

/// A row begins with the limit's name as code: ``| `name` |``.
fn limits_documented(limits: &[String], page: &str, findings: &mut Vec<Finding>) {
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

/// The entries of `dialect::ALL`: `&name::DIALECT`, or a constant re-exported under its name.
fn dialect_names(source: &str) -> Vec<String> {
    let rust = Rust::of(source);
    let Some((_, list)) = rust.code.split_once("ALL: &[&Dialect] = &[") else { return Vec::new() };
    let list = list.split(']').next().unwrap_or_default();
    let entries = list.split(',').map(|entry| entry.trim().trim_start_matches('&'));
    let names = entries.filter_map(|entry| entry.split("::").next()).map(str::to_lowercase);
    names.filter(|name| !name.is_empty()).collect()
}

fn transcripts(dialects: &[String], files: &[&str], findings: &mut Vec<Finding>) {
    for dialect in dialects {
        let folder = format!("tests/data/{dialect}/");
        if !files.iter().any(|file| file.starts_with(&folder)) {
            find(findings, "src/dialect/mod.rs", 1, format!("{dialect} has no {folder}"));
        }
    }
}

fn unfinished(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
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

/// Sources are the same on every machine and leave the choice of a registry to its client.
fn machine_names(file: &str, text: &str, findings: &mut Vec<Finding>) {
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

/// True when an absolute path in `line` begins with `path`, which is not part of a longer one.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        let is_begin = !before.is_some_and(|c| is_ident(c) || ".-/}".contains(c));
        is_begin && !after.is_some_and(|c| is_ident(c) || c == '-')
    })
}

// --- Reading Rust, well enough -------------------------------------------------------------------

/// A source file, and the same with parts of it replaced by spaces; all have the same lines.
struct Rust {
    text: String,
    /// Without comments, the contents of strings, and items under `#[cfg(test)]`.
    code: String,
    /// As `code`, with strings.
    with_strings: String,
    /// As `code`, with tests.
    all_code: String,
}

impl Rust {
    fn of(text: &str) -> Rust {
        let (all_code, mut with_strings) = blank(text);
        let mut code = all_code.clone();
        for (start, end) in test_items(&all_code) {
            code.replace_range(start..end, &spaces(&code[start..end]));
            with_strings.replace_range(start..end, &spaces(&with_strings[start..end]));
        }
        Rust { text: text.to_owned(), code, with_strings, all_code }
    }

    fn lines_without_tests(&self) -> usize {
        let tests: usize = test_items(&self.all_code)
            .iter()
            .map(|(start, end)| self.all_code[*start..*end].matches('\n').count())
            .sum();
        self.text.lines().count() - tests
    }
}

fn spaces(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect()
}

/// The text without comments and without the contents of literals, and without comments only.
/// Both are ASCII outside of strings, so that byte offsets are the same in both.
fn blank(text: &str) -> (String, String) {
    let bytes: Vec<u8> = text.bytes().map(|b| if b.is_ascii() { b } else { b'~' }).collect();
    let (mut code, mut strings) = (bytes.clone(), bytes.clone());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(&bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => comment_end(&bytes, at),
            b'"' => string_end(&bytes, at),
            b'r' if !is_word_before(&bytes, at) => raw_end(&bytes, at),
            b'\'' => char_end(&bytes, at),
            _ => at + 1,
        };
        let is_comment = bytes[at] == b'/' && end > at + 1;
        if end > at + 1 {
            let (from, upto) = if is_comment { (at, end) } else { (at + 1, end - 1) };
            wipe(&mut code[from..upto]);
            if is_comment {
                wipe(&mut strings[from..upto]);
            }
        }
        at = end;
    }
    (String::from_utf8(code).expect("ASCII"), String::from_utf8(strings).expect("ASCII"))
}

fn wipe(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = if *byte == b'\n' { b'\n' } else { b' ' };
    }
}

/// `b` and `c` before a raw string belong to it, any other word does not.
fn is_word_before(bytes: &[u8], at: usize) -> bool {
    let is_word = |at: usize| is_ident(char::from(bytes[at]));
    match at {
        0 => false,
        1 => is_word(0) && !b"bc".contains(&bytes[0]),
        _ => is_word(at - 1) && (!b"bc".contains(&bytes[at - 1]) || is_word(at - 2)),
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |length| at + length)
}

fn comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of `r#"…"#`, or of the letter if no raw string begins here.
fn raw_end(bytes: &[u8], start: usize) -> usize {
    let hashes = bytes[start + 1..].iter().take_while(|b| **b == b'#').count();
    if bytes.get(start + 1 + hashes) != Some(&b'"') {
        return start + 1;
    }
    let close: Vec<u8> = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let body = start + 2 + hashes;
    let found = bytes[body..].windows(close.len()).position(|window| window == close);
    found.map_or(bytes.len(), |length| body + length + close.len())
}

/// The end of a character literal, or of the quote if it begins a lifetime.
fn char_end(bytes: &[u8], start: usize) -> usize {
    if bytes.get(start + 1) == Some(&b'\\') {
        let rest = bytes.get(start + 3..).unwrap_or_default();
        return rest.iter().position(|b| *b == b'\'').map_or(bytes.len(), |n| start + n + 4);
    }
    // A character beyond ASCII has up to four bytes.
    let upto = (start + 6).min(bytes.len());
    let close = (start + 2..upto).find(|at| bytes[*at] == b'\'');
    let is_char =
        |close: &usize| *close == start + 2 || bytes[start + 1..*close].iter().all(|b| *b == b'~');
    close.filter(is_char).map_or(start + 1, |close| close + 1)
}

/// Where items under `#[cfg(test)]` begin and end.
fn test_items(code: &str) -> Vec<(usize, usize)> {
    let mut items = Vec::new();
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        let end = item_end(code, start + "#[cfg(test)]".len());
        items.push((start, end));
        from = end;
    }
    items
}

/// The files that `file` declares as tests: `#[cfg(test)] mod name;`.
fn test_files(file: &str, text: &str) -> Vec<String> {
    let code = blank(text).0;
    let stem = file.trim_end_matches(".rs");
    let folder = stem.strip_suffix("/mod").or(stem.strip_suffix("/lib")).unwrap_or(stem);
    let items = test_items(&code).into_iter().map(|(start, end)| &code[start..end]);
    let names = items.filter_map(|item| item.rsplit_once("mod ")?.1.strip_suffix(';'));
    names.map(|name| format!("{folder}/{}.rs", name.trim())).collect()
}

/// The end of the item that begins at or after `from`: a `;`, or the brace that closes its body.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0usize;
    for (at, c) in code[from..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && c == '}' {
                    return from + at + 1;
                }
            }
            ';' if depth == 0 => return from + at + 1,
            _ => {}
        }
    }
    code.len()
}

fn is_ident(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Where `name` stands in `line` as a whole word.
fn word(line: &str, name: &str) -> Option<usize> {
    let is_free = |c: Option<char>| !c.is_some_and(is_ident);
    let mut found = line.match_indices(name).map(|(at, _)| at);
    found.find(|at| {
        is_free(line[..*at].chars().next_back()) && is_free(line[at + name.len()..].chars().next())
    })
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Every function with a body, from its `fn` to its closing brace.
fn functions(code: &str) -> Vec<Function> {
    let mut functions = Vec::new();
    let mut from = 0;
    while let Some(found) = word(&code[from..], "fn") {
        let start = from + found;
        from = start + 2;
        let name = code[from..].trim_start();
        let name: String = name.chars().take_while(|c| is_ident(*c)).collect();
        // A pointer type has no name; a declaration in a trait ends before any brace.
        let end = item_end(code, from);
        if name.is_empty() || !code[..end].ends_with('}') {
            continue;
        }
        let line = code[..start].matches('\n').count() + 1;
        let lines = code[start..end].matches('\n').count() + 1;
        functions.push(Function { name, line, lines });
    }
    functions
}

/// Every path in the code with its line; the groups of a `use` are spelled out.
fn paths(code: &str) -> Vec<(usize, Vec<String>)> {
    let mut cursor = Cursor { code: code.as_bytes(), at: 0, line: 1 };
    let mut found = Vec::new();
    while let Some(byte) = cursor.peek() {
        if is_ident(char::from(byte)) {
            cursor.path(&mut Vec::new(), &mut found);
        } else {
            cursor.step();
        }
    }
    found
}

struct Cursor<'c> {
    code: &'c [u8],
    at: usize,
    line: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.code.get(self.at).copied()
    }

    fn step(&mut self) {
        self.line += usize::from(self.peek() == Some(b'\n'));
        self.at += 1;
    }

    fn white(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace()) {
            self.step();
        }
    }

    /// Steps over `::` and the space around it; otherwise stays where it is.
    fn colons(&mut self) -> bool {
        let (at, line) = (self.at, self.line);
        self.white();
        if self.code[self.at.min(self.code.len())..].starts_with(b"::") {
            self.at += 2;
            self.white();
            return true;
        }
        (self.at, self.line) = (at, line);
        false
    }

    /// Reads a path that continues `prefix`; groups become one path for each member.
    fn path(&mut self, prefix: &mut Vec<String>, found: &mut Vec<(usize, Vec<String>)>) {
        let (depth, line) = (prefix.len(), self.line);
        loop {
            let start = self.at;
            while self.peek().is_some_and(|b| is_ident(char::from(b))) {
                self.step();
            }
            prefix.push(String::from_utf8_lossy(&self.code[start..self.at]).into_owned());
            if !self.colons() {
                found.push((line, prefix.clone()));
                break;
            }
            match self.peek() {
                Some(b'{') => {
                    self.group(prefix, found);
                    break;
                }
                Some(b) if is_ident(char::from(b)) => {}
                Some(_) | None => {
                    found.push((line, prefix.clone()));
                    break;
                }
            }
        }
        prefix.truncate(depth);
    }

    fn group(&mut self, prefix: &mut Vec<String>, found: &mut Vec<(usize, Vec<String>)>) {
        self.step();
        while let Some(byte) = self.peek().filter(|b| *b != b'}') {
            if is_ident(char::from(byte)) {
                self.path(prefix, found);
            } else {
                self.step();
            }
        }
        self.step();
    }
}

// --- The files -----------------------------------------------------------------------------------

struct File {
    /// From the root of the repository, with slashes.
    name: String,
    text: String,
    /// Empty for other files than Rust.
    rust: Rust,
}

/// Read once for all rules.
static TREE: LazyLock<Tree> = LazyLock::new(Tree::read);

impl File {
    fn is_rust(&self) -> bool {
        self.name.ends_with(".rs")
    }
}

struct Tree {
    files: Vec<File>,
}

impl Tree {
    /// All text files of the repository.
    fn read() -> Tree {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let skipped: Vec<&str> = ignored.lines().chain(SKIPPED.iter().copied()).collect();
        let mut tree = Tree { files: Vec::new() };
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder").flatten() {
                let path = entry.path();
                let name = path.strip_prefix(root).expect("below the root").to_string_lossy();
                let name = name.replace('\\', "/");
                match entry.file_type().expect("a kind of file") {
                    _ if skipped.iter().any(|pattern| is_match(pattern, &name)) => {}
                    kind if kind.is_dir() => folders.push(path),
                    kind if kind.is_file() => tree.add(name, &path),
                    _ => {}
                }
            }
        }
        tree.files.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(tree.files.iter().any(|file| file.name == "src/lib.rs"), "the sources are gone");
        tree
    }

    /// Bytes that are no text have nothing to say.
    fn add(&mut self, name: String, path: &Path) {
        if let Ok(text) = fs::read_to_string(path) {
            let rust = Rust::of(if name.ends_with(".rs") { &text } else { "" });
            self.files.push(File { name, text, rust });
        }
    }

    /// The library and the binary, without files that are tests as a whole.
    fn sources(&self) -> impl Iterator<Item = &File> {
        let all = || self.files.iter().filter(|f| f.is_rust() && f.name.starts_with("src/"));
        let tests: Vec<String> = all().flat_map(|f| test_files(&f.name, &f.text)).collect();
        all().filter(move |file| !tests.contains(&file.name))
    }

    fn text(&self, name: &str) -> String {
        let file = self.files.iter().find(|file| file.name == name);
        file.map(|file| file.text.clone()).unwrap_or_default()
    }
}

/// A line of `.gitignore`: `/path`, or the name of a file anywhere; with one star at most.
fn is_match(pattern: &str, name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let (pattern, text) = match pattern.strip_prefix('/') {
        Some(path) => (path, name),
        None => (pattern, last),
    };
    match pattern.split_once('*') {
        Some((head, tail)) => text.starts_with(head) && text.ends_with(tail),
        None => text == pattern,
    }
}

// --- Every rule can fail -------------------------------------------------------------------------

mod rules_can_fail {
    use super::*;

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
    fn an_upward_import() {
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
        assert_eq!(
            run(imports, "src/store/page.rs", multi),
            ["3: store (rank 4) names net (rank 9)"]
        );
    }

    #[test]
    fn an_import_of_a_sibling() {
        assert_eq!(run(imports, "src/op/send.rs", "use crate::binding::Site;").len(), 1);
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
    fn a_module_without_a_rank() {
        let mut findings = Vec::new();
        modules_have_ranks("pub mod json;\npub mod util;\nmod helper;\n", &mut findings);
        assert_eq!(findings.iter().map(|f| f.line).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(run(imports, "src/util.rs", "").len(), 1);
    }

    #[test]
    fn a_clock_below_the_driver() {
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
    fn a_long_file() {
        let (full, long) = ("\n".repeat(FILE_LINES_MAX), "\n".repeat(FILE_LINES_MAX + 1));
        assert_eq!(run(sizes, "src/a.rs", &full), [""; 0]);
        assert_eq!(run(sizes, "src/a.rs", &long).len(), 1);
        let tests = format!("{full}#[cfg(test)]\nmod tests {{{full}}}\n");
        assert_eq!(run(sizes, "src/a.rs", &tests).len(), 1, "the last line is code");
        let tests = format!("#[cfg(test)]\nmod tests {{{full}}}{full}");
        assert_eq!(run(sizes, "src/a.rs", &tests), [""; 0]);
    }

    #[test]
    fn a_long_function() {
        let body = |lines: usize| "    let brace = ('{', \"}\\\"}\", '\\'', b'}');\n".repeat(lines);
        let function = |lines| format!("\nfn f<'a>(x: [u8; 2]) -> &'a str {{\n{}}}\n", body(lines));
        assert_eq!(run(sizes, "src/a.rs", &function(FUNCTION_LINES_MAX - 2)), [""; 0]);
        let found = run(sizes, "src/a.rs", &function(FUNCTION_LINES_MAX - 1));
        assert_eq!(found, [format!("2: fn f has {} lines", FUNCTION_LINES_MAX + 1)]);
        let declared = format!("trait T {{ fn f(&self);\n{}fn g(); }}", "\n".repeat(80));
        assert_eq!(run(sizes, "src/a.rs", &declared), [""; 0]);
        let nested = format!("mod m {{\nimpl A {{\n{}}}\n}}", function(80));
        assert_eq!(lines(&run(sizes, "src/a.rs", &nested)), ["4"]);
    }

    #[test]
    fn a_long_line() {
        let wide = |columns: usize| format!("//{}\n", "é".repeat(columns - 2));
        assert_eq!(run(sizes, "src/a.rs", &wide(COLUMNS_MAX)), [""; 0]);
        assert_eq!(run(sizes, "src/a.rs", &wide(COLUMNS_MAX + 1)).len(), 1);
        assert_eq!(run(sizes, LONG_LINES[0].0, &wide(COLUMNS_MAX + 1)), [""; 0]);
    }

    #[test]
    fn unsafe_code() {
        assert_eq!(run(unsafe_places, "src/json/a.rs", "fn f() { unsafe { g() } }").len(), 1);
        assert_eq!(run(unsafe_places, "src/json/a.rs", "unsafe impl Send for A {}").len(), 1);
        assert_eq!(run(unsafe_places, "src/json/a.rs", "// unsafe\nfn unsafe_f() {}"), [""; 0]);
        assert_eq!(run(unsafe_places, "src/ffi/mod.rs", "unsafe fn f() {}"), [""; 0]);
    }

    #[test]
    fn a_version_comparison() {
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
    fn a_limit_without_a_test() {
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
    fn a_limit_without_a_row() {
        let page = "| name |\n|---|\n| `head_max` | 16 KiB |\n| `old_max` | 1 |\nidle_ms\n";
        let mut findings = Vec::new();
        limits_documented(&limit_names(LIMITS), page, &mut findings);
        let what: Vec<&str> = findings.iter().map(|f| f.what.as_str()).collect();
        assert_eq!(what, ["idle_ms has no row", "old_max is no limit"]);
    }

    #[test]
    fn a_dialect_without_transcripts() {
        let list = "pub static ALL: &[&Dialect] = &[\n    &STANDARD,\n    // &no::DIALECT,\n    \
            &other::DIALECT,\n];\n";
        let dialects = dialect_names(list);
        assert_eq!(dialects, ["standard", "other"]);
        let mut findings = Vec::new();
        let files = ["tests/data/standard/send.txt", "tests/data/other.toml"];
        transcripts(&dialects, &files, &mut findings);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.starts_with("other "));
    }

    #[test]
    fn unfinished_code() {
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
    fn a_machine_or_a_registry() {
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
    fn ignored_files_are_not_read() {
        for (pattern, name) in
            [("/target", "target"), ("/a/.venv*", "a/.venv-1"), ("*.pyc", "a/b.pyc"), ("x", "a/x")]
        {
            assert!(is_match(pattern, name), "{pattern}");
        }
        for (pattern, name) in [("/target", "fuzz/target"), ("x", "xx"), ("", "a"), ("*.pyc", "a")]
        {
            assert!(!is_match(pattern, name), "{pattern}");
        }
    }

    #[test]
    fn test_files_are_declared() {
        let text = "#[cfg(test)]\n#[allow(x)]\nmod tests;\n#[cfg(test)]\nmod a { use b; }\nmod b;";
        assert_eq!(test_files("src/store/mod.rs", text), ["src/store/tests.rs"]);
        assert_eq!(test_files("src/lib.rs", text), ["src/tests.rs"]);
        assert_eq!(test_files("src/store/page.rs", text), ["src/store/page/tests.rs"]);
        assert_eq!(test_files("src/store/mod.rs", "mod tests;"), [""; 0]);
    }

    #[test]
    fn literals_are_read_as_literals() {
        let text = "let a = 'x'; let b: &'static str = \"\\\\\"; let c = b\"{\"; // }\n\
            let d = br##\"\"#}\"##; let e = '\\u{7d}'; let f = 'é'; for_r\"x\"; /* } */ g()";
        let (code, strings) = blank(text);
        assert_eq!(code.matches(['{', '}']).count(), 0, "{code}");
        assert_eq!(code.lines().count(), 2);
        assert!(code.contains("'static") && code.ends_with("g()"));
        assert!(strings.contains("b\"{\"") && !strings.contains("/*"));
    }
}
