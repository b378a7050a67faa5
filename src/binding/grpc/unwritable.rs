//! What JSON has and gRPC cannot carry: the escape of half a surrogate pair, which some agents
//! write. Its answer is an error that names the member, in place of a text that is not the agent's.
//!
//! Law: what is noted on a thread is taken by the end of the same answer, or forgotten.

use std::cell::RefCell;

use crate::{
    fault::{Fault, FaultKind},
    json::{self, DEPTH_CAP, Kind, Parser, Value},
};

thread_local! {
    /// The member of the answer that is being written.
    static MEMBER: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Writes a message, and notes what of it could not be written. `push_json` writes the same as
/// JSON.
#[inline]
pub fn noting<R>(write: impl FnOnce() -> R, push_json: impl FnOnce(&mut Vec<u8>)) -> R {
    json::take_halves();
    let written = write();
    if json::take_halves() {
        note(push_json);
    }
    written
}

#[cold]
fn note(push_json: impl FnOnce(&mut Vec<u8>)) {
    let (mut json, mut parser) = (Vec::new(), Parser::new());
    push_json(&mut json);
    parser.take_lone_surrogates(true);
    let mut path = String::new();
    // A piece of a page is no document; then the answer as a whole is named.
    if let Ok(value) = parser.parse(&json, DEPTH_CAP) {
        find(value, &mut path);
    }
    MEMBER.set(Some(path));
}

/// Whether a value has half a surrogate pair; the path leads to it then.
fn find(value: Value<'_>, path: &mut String) -> bool {
    let length = path.len();
    match value.kind() {
        Kind::String => return json::without_lone_surrogates(value.raw_str().as_bytes()).is_some(),
        Kind::Object => {
            for (key, member) in value.members() {
                let name = key.text();
                let name = String::from_utf8_lossy(&name);
                if length > 0 {
                    path.push('.');
                }
                path.push_str(&name);
                if name.contains(char::REPLACEMENT_CHARACTER) || find(member, path) {
                    return true;
                }
                path.truncate(length);
            }
        }
        Kind::Array => {
            for (at, element) in value.elements().enumerate() {
                path.push_str(&format!("[{at}]"));
                if find(element, path) {
                    return true;
                }
                path.truncate(length);
            }
        }
        _ => {}
    }
    false
}

/// The error of the answer that was written just now, if it is one.
pub fn take() -> Option<Fault> {
    let member = MEMBER.take()?;
    let member = if member.is_empty() { "the answer" } else { &member };
    let why = format!(
        "{member}: it has half of a surrogate pair, which JSON can carry and gRPC cannot; ask \
         for it over another binding"
    );
    Some(Fault::because(FaultKind::UnsupportedOperation, why))
}
