//! Replays `fuzz/corpus/<target>/*` on stable: each target has a corpus, and each input passes.
//!
//! The targets themselves are included, so replay and fuzzing run the same code; the targets use
//! the properties of this crate.

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

macro_rules! targets {
    ($($name:ident $file:literal $(, needs $feature:literal)?;)+) => {
        $(#[path = $file] mod $name;)+
        const TARGETS: &[&str] = &[$(stringify!($name)),+];
        $(#[test]
        $(#[cfg_attr(not(feature = $feature), ignore = "needs a feature; the fuzz step has it")])?
        fn $name() {
            replay(stringify!($name), $name::property);
        })+
    };
}

targets! {
    admission "../../fuzz/fuzz_targets/admission.rs";
    answers "../../fuzz/fuzz_targets/answers.rs";
    cards "../../fuzz/fuzz_targets/cards.rs";
    config "../../fuzz/fuzz_targets/config.rs";
    conn "../../fuzz/fuzz_targets/conn.rs";
    dialect "../../fuzz/fuzz_targets/dialect.rs";
    ffi "../../fuzz/fuzz_targets/ffi.rs", needs "ffi";
    grpc "../../fuzz/fuzz_targets/grpc.rs";
    http_chunks "../../fuzz/fuzz_targets/http_chunks.rs";
    http_date "../../fuzz/fuzz_targets/http_date.rs";
    http_head "../../fuzz/fuzz_targets/http_head.rs";
    http_memo "../../fuzz/fuzz_targets/http_memo.rs";
    http_parts "../../fuzz/fuzz_targets/http_parts.rs";
    http_path "../../fuzz/fuzz_targets/http_path.rs";
    http_responses "../../fuzz/fuzz_targets/http_responses.rs";
    json "../../fuzz/fuzz_targets/json.rs";
    jwks "../../fuzz/fuzz_targets/jwks.rs";
    lines "../../fuzz/fuzz_targets/lines.rs";
    replies "../../fuzz/fuzz_targets/replies.rs";
    rest "../../fuzz/fuzz_targets/rest.rs";
    rpc "../../fuzz/fuzz_targets/rpc.rs";
    sse "../../fuzz/fuzz_targets/sse.rs";
    store "../../fuzz/fuzz_targets/store.rs";
    text "../../fuzz/fuzz_targets/text.rs";
    token "../../fuzz/fuzz_targets/token.rs";
    ws "../../fuzz/fuzz_targets/ws.rs";
    ws_client "../../fuzz/fuzz_targets/ws_client.rs";
    ws_conn "../../fuzz/fuzz_targets/ws_conn.rs";
}

/// File names without extension in a folder below `fuzz/`.
fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz().join(folder)).unwrap();
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    entries.map(|entry| stem(entry.unwrap().path())).collect()
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The replayed and the fuzzed targets are the same.
#[test]
fn fuzz_targets_corpora_and_manifest_match() {
    let replayed: BTreeSet<String> = TARGETS.iter().map(|name| (*name).to_owned()).collect();
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

/// Replays all inputs of one target, and the empty one, with which each fuzzer starts.
fn replay(name: &str, property: fn(&[u8])) {
    let entries = fs::read_dir(fuzz().join("corpus").join(name)).unwrap();
    let inputs: BTreeSet<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(!inputs.is_empty(), "an empty corpus");
    for input in &inputs {
        let bytes = fs::read(input).unwrap();
        catch_unwind(AssertUnwindSafe(|| property(&bytes)))
            .unwrap_or_else(|_| panic!("{} breaks the property", input.display()));
    }
    property(b"");
}
