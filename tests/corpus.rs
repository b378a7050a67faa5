//! Replays `fuzz/corpus/<target>/*` on stable: every target has a corpus, and every input passes.
//!
//! The targets themselves are included, so what is replayed is what is fuzzed. The properties'
//! own tests run elsewhere; this is a `main` so that they do not run twice. It takes a filter and
//! `--list` as the standard harness does.

#![allow(clippy::unwrap_used, clippy::expect_used)]
// Each target includes its properties, and uses some of what stands beside them.
#![allow(clippy::duplicate_mod, clippy::module_inception, dead_code, unused_imports)]

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
};

type Property = fn(&[u8]);

macro_rules! targets {
    ($($name:ident $file:literal)+) => {
        $(#[path = $file] mod $name;)+
        const TARGETS: &[(&str, Property)] = &[$((stringify!($name), $name::property)),+];
    };
}

targets! {
    conn "../fuzz/fuzz_targets/conn.rs"
    dialect "../fuzz/fuzz_targets/dialect.rs"
    grpc "../fuzz/fuzz_targets/grpc.rs"
    http_chunks "../fuzz/fuzz_targets/http_chunks.rs"
    http_date "../fuzz/fuzz_targets/http_date.rs"
    http_head "../fuzz/fuzz_targets/http_head.rs"
    http_memo "../fuzz/fuzz_targets/http_memo.rs"
    http_path "../fuzz/fuzz_targets/http_path.rs"
    json "../fuzz/fuzz_targets/json.rs"
    rest "../fuzz/fuzz_targets/rest.rs"
    rpc "../fuzz/fuzz_targets/rpc.rs"
    sse "../fuzz/fuzz_targets/sse.rs"
    store "../fuzz/fuzz_targets/store.rs"
    text "../fuzz/fuzz_targets/text.rs"
    ws "../fuzz/fuzz_targets/ws.rs"
    ws_conn "../fuzz/fuzz_targets/ws_conn.rs"
}

/// Names without extension of what is in a folder below `fuzz/`.
fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz().join(folder)).unwrap();
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    entries.map(|entry| stem(entry.unwrap().path())).collect()
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// Nothing is fuzzed that is not replayed, nothing replayed that is not fuzzed.
fn the_lists_agree() {
    let replayed: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(replayed, names("fuzz_targets"), "replayed, and in fuzz/fuzz_targets");
    assert_eq!(replayed, names("corpus"), "replayed, and in fuzz/corpus");
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in &replayed {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is in fuzz/Cargo.toml");
        let source = fuzz().join(format!("fuzz_targets/{name}.rs"));
        let text = fs::read_to_string(source).unwrap();
        let first = text.lines().next().unwrap();
        assert!(first.starts_with("//! ") && first.ends_with('.'), "{name} states its property");
    }
}

/// Replays all inputs of one target and returns how many there were.
fn replay(name: &str, property: Property) -> Result<usize, String> {
    let mut inputs: Vec<PathBuf> = fs::read_dir(fuzz().join("corpus").join(name))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    inputs.sort();
    for input in &inputs {
        let bytes = fs::read(input).unwrap();
        catch_unwind(AssertUnwindSafe(|| property(&bytes)))
            .map_err(|_| format!("{} breaks the property", input.display()))?;
    }
    // The empty input is every fuzzer's first.
    catch_unwind(AssertUnwindSafe(|| property(b""))).map_err(|_| "the empty input".to_owned())?;
    if inputs.is_empty() { Err("an empty corpus".to_owned()) } else { Ok(inputs.len()) }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| {
        let mut filters = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
        filters.peek().is_none() || filters.any(|filter| name.contains(filter.as_str()))
    };
    let wanted = TARGETS.iter().filter(|(name, _)| is_wanted(name));
    if arguments.iter().any(|argument| argument == "--list") {
        wanted.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    the_lists_agree();
    let (mut passed, mut failed) = (0, 0);
    for (name, property) in wanted {
        match replay(name, *property) {
            Ok(inputs) => {
                println!("test {name} ... ok ({inputs} inputs)");
                passed += 1;
            }
            Err(why) => {
                println!("test {name} ... FAILED: {why}");
                failed += 1;
            }
        }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed; 0 ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
