//! Rules that a reviewer should not have to check: imports between modules, sizes, names with a
//! fixed owner, and that each limit and each dialect has its tests and documentation.
//!
//! Each rule is a function from text to findings, and has a test in `rules_can_fail` with a bad
//! snippet. A banned word is split in two here, because the rules check these files as well.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod generated;
mod header;
mod rules;
mod rules_can_fail;
mod rust;
mod style;
mod tree;
mod words;

use self::{rules::*, rust::*, tree::*};

// --- The rules as data ---------------------------------------------------------------------------

/// Ranks of the modules: a module imports from lower ranks only (docs/architecture.md).
const RANKS: &[(&str, u8)] = &[
    ("main", 13),
    ("ffi", 13),
    ("embed", 12),
    ("cli", 11),
    ("load", 10),
    ("net", 9),
    ("cluster", 8),
    ("gateway", 7),
    ("engine", 6),
    ("client", 6),
    ("op", 5),
    ("binding", 5),
    ("dialect", 4),
    ("store", 4),
    ("push", 4),
    ("auth", 4),
    ("service", 3),
    ("agent", 3),
    ("watch", 3),
    ("model", 2),
    ("rpc", 2),
    ("json", 1),
    ("http", 1),
    ("sse", 1),
    ("ws", 1),
    ("pb", 1),
    ("limits", 0),
    ("histogram", 0),
    ("fault", 0),
    ("network", 0),
    ("waiter", 0),
    ("permits", 0),
    ("shares", 0),
    ("network", 0),
];

/// Imports between modules of one rank: from, to, and the reason.
const SIBLINGS: &[(&str, &str, &str)] = &[
    ("agent", "service", "a turn carries the time and the key that the waist defines"),
    ("sse", "json", "the number of a frame is written by json's one number writer"),
];

/// The driver's rank: below it there is no runtime, socket, thread or clock.
const DRIVER_RANK: u8 = 9;

/// Paths that only the driver may name.
const DRIVER_ONLY: &[&[&str]] = &[
    &["tokio"],
    &["socket2"],
    &["getrandom"],
    &["chacha20"],
    &["rand"],
    &["std", "net"],
    &["std", "thread"],
    &["Instant", "now"],
    &["SystemTime"],
];

/// Paths that look like the driver's but are allowed: path and reason.
const DRIVER_EXCEPTIONS: &[(&str, &str)] = &[
    ("std::net::IpAddr", "an address is data; reading one opens no socket"),
    ("std::net::Ipv4Addr", "an address is data; reading one opens no socket"),
    ("std::net::Ipv6Addr", "an address is data; reading one opens no socket"),
    ("ring::rand::SystemRandom", "an ECDSA signature needs a nonce, which ring draws itself"),
];

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 100;
const COLUMNS_MAX: usize = 100;

/// Files with longer lines, with the reason.
const LONG_LINES: &[(&str, &str)] =
    &[("src/fault.rs", "a table with one row for each fault, which rustfmt skips")];

/// Folders where `unsafe` is allowed, with the reason.
const UNSAFE_PATHS: &[(&str, &str)] = &[("src/ffi/", "a C interface has no other way")];

/// Files outside `dialect/` that compare a version, with the reason.
const VERSION_PATHS: &[(&str, &str)] =
    &[("src/rpc.rs", "the version of JSON-RPC itself, of which there is one")];

/// Macros and words that mark unfinished code.
const UNFINISHED_MACROS: &[&str] =
    &[concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")];
const UNFINISHED_WORD: &str = concat!("FIX", "ME");

/// Absolute paths of a particular machine begin with these.
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

/// Paths that the rules skip in addition to `.gitignore`: the history, and inputs found by a
/// fuzzer.
const SKIPPED: &[&str] = &["/.git", "/fuzz/corpus"];

// --- The tests -----------------------------------------------------------------------------------

#[test]
fn modules_import_only_allowed_ranks() {
    let tree = &*TREE;
    let mut findings = Vec::new();
    for file in tree.sources() {
        imports(&file.name, &file.rust, &mut findings);
    }
    modules_have_ranks(&tree.text("src/lib.rs"), &mut findings);
    none(&findings);
}

#[test]
fn only_the_driver_names_runtime_sockets_and_clocks() {
    check_sources(|file, rust, findings| driver_names(&file.name, rust, findings));
}

#[test]
fn files_functions_and_lines_are_short() {
    check_sources(|file, rust, findings| sizes(&file.name, rust, findings));
}

#[test]
fn unsafe_code_occurs_only_in_allowed_paths() {
    check_sources(|file, rust, findings| unsafe_outside_paths(&file.name, rust, findings));
}

#[test]
fn versions_are_compared_in_dialects_only() {
    check_sources(|file, rust, findings| version_comparisons(&file.name, rust, findings));
}

#[test]
fn limits_are_tested_and_documented() {
    let tree = &*TREE;
    let limits = limit_names(&tree.text("src/limits.rs"));
    assert!(limits.len() > 30, "the limits are no longer found: {limits:?}");
    let rust =
        tree.files.iter().filter(|file| file.is_rust() && !file.name.starts_with("tests/tidy/"));
    let tests: Vec<String> = rust.flat_map(|file| test_names(&file.rust)).collect();
    let mut findings = Vec::new();
    limits_tested(&limits, &tests, &mut findings);
    let page = tree.text("docs/limits.md");
    let (server, client) = page.split_once("\n## The client\n").expect("a section of the client");
    limits_documented(&limits, server, &mut findings);
    let fields = field_names(&tree.text("src/client/limits.rs"));
    assert!(fields.len() > 15, "the client's limits are no longer found: {fields:?}");
    limits_documented(&fields, client, &mut findings);
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
fn citations_name_existing_sections() {
    let tree = &*TREE;
    let mut findings = Vec::new();
    let ours = |name: &str| name == words::WIRE || name.starts_with("tests/tidy/");
    for file in tree.files.iter().filter(|file| !ours(&file.name)) {
        words::citations(&file.name, &file.text, &tree.text(words::WIRE), &mut findings);
    }
    none(&findings);
}

#[test]
fn sources_and_docs_avoid_words_for_people() {
    let tree = &*TREE;
    let mut findings = Vec::new();
    let is_read =
        |name: &str| name.starts_with("src/") || name == "README.md" || name.starts_with("docs/");
    // Decision records stay unchanged.
    let is_record = |name: &str| name.starts_with("docs/adr/");
    for file in tree.files.iter().filter(|file| is_read(&file.name) && !is_record(&file.name)) {
        words::people(&file.name, &file.text, &mut findings);
    }
    none(&findings);
}

#[test]
fn glossary_words_are_type_names() {
    let mut findings = Vec::new();
    let code: String = TREE.sources().map(|file| &*file.rust.code).collect();
    words::glossary(&TREE.text("docs/glossary.md"), &code, &mut findings);
    none(&findings);
}

#[test]
fn strings_contain_few_words_for_people() {
    let mut findings = Vec::new();
    for file in TREE.sources() {
        words::people_in_strings(&file.name, &file.rust, &mut findings);
    }
    none(&words::few_people_in_strings(findings));
}

#[test]
fn comments_contain_few_words_for_people() {
    let mut findings = Vec::new();
    for file in TREE.files.iter().filter(|file| file.is_rust()) {
        style::people_in_comments(&file.name, &file.rust.text, &mut findings);
    }
    none(&style::few_people_in_comments(findings));
}

#[test]
fn no_parameter_is_a_tuple() {
    check_rust(style::tuple_parameters);
}

#[test]
fn identifiers_use_the_words_of_the_field() {
    check_rust(style::identifiers_are_plain);
}

#[test]
fn test_names_are_short_and_plain() {
    check_rust(style::test_names_are_plain);
}

#[test]
fn few_types_share_a_name() {
    let mut findings = Vec::new();
    let sources = TREE.sources().map(|file| (&*file.name, &file.rust));
    words::few_shared_names(&words::shared_names(sources), &mut findings);
    none(&findings);
}

#[test]
fn code_has_no_unfinished_markers() {
    check_rust(unfinished);
}

#[test]
fn files_name_no_machine_path_or_registry() {
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

/// Applies a rule to each file of Rust, in `src` or elsewhere.
fn check_rust(rule: impl Fn(&str, &Rust, &mut Vec<Finding>)) {
    let mut findings = Vec::new();
    for file in TREE.files.iter().filter(|file| file.is_rust()) {
        rule(&file.name, &file.rust, &mut findings);
    }
    none(&findings);
}

fn none(findings: &[Finding]) {
    let list: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(list.is_empty(), "{} finding(s):\n{}", list.len(), list.join("\n"));
}
