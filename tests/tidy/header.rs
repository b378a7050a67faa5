//! The header of the C interface matches `src/ffi`, and the packages for other languages have the
//! version of the crate.
//!
//! `REGENERATE=1 cargo test --test tidy header` generates it again.

use std::{env, fs, path::Path};

const HEADER: &str = "src/ffi/include/peregrine.h";

#[test]
fn c_header_matches_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("src/ffi/cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = builder.with_src(root.join("src/ffi/mod.rs"));
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if env::var_os("REGENERATE").is_some() {
        fs::write(root.join(HEADER), &made).unwrap();
    }
    let current = fs::read_to_string(root.join(HEADER)).unwrap();
    assert!(current == made, "{HEADER} is not current: REGENERATE=1 cargo test --test tidy header");
}

#[test]
fn language_packages_have_the_crate_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("src/ffi/peregrine.pc.in", format!("Version: {version}")),
        ("src/ffi/python/Cargo.toml", format!("version = \"{version}\"")),
    ] {
        let text = fs::read_to_string(root.join(file)).unwrap();
        assert!(text.lines().any(|one| one == line), "{file}: {line}");
    }
}

/// The thread rules of functions.
const THREAD_RULES: [&str; 2] = ["Call from any thread", "Call only in the callback"];

#[test]
fn c_functions_document_threads_and_errors() {
    let header = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(HEADER)).unwrap();
    let mut comment = String::new();
    let mut functions = 0;
    for line in header.lines() {
        if line == "/**" {
            comment.clear();
        } else if let Some(text) = line.strip_prefix(" *") {
            comment.push_str(text);
        } else if let Some((returned, rest)) = line.split_once(" peregrine_") {
            functions += 1;
            let name = rest.split('(').next().unwrap_or_default();
            let has_rule = THREAD_RULES.iter().any(|rule| comment.contains(rule));
            assert!(has_rule, "peregrine_{name}: its comment names no thread");
            let has_errors = comment.contains("Errors: `") || !returned.contains("Status");
            assert!(has_errors, "peregrine_{name}: its comment lists no errors");
        }
    }
    assert!(functions >= 60, "the header has {functions} functions");
}
