//! JSON that gRPC cannot carry: the escape of half of a surrogate pair, which some agents write.
//! The answer is then an error that names the member, because a replacement would change the
//! agent's text.
//!
//! Invariant: the record belongs to the message that this thread has opened last; opening a message
//! clears it ([`forget`]). Without the feature `client` the server never stores such a text.

#[cfg(feature = "client")]
use std::cell::RefCell;

use crate::fault::Fault;
#[cfg(feature = "client")]
use crate::{
    fault::FaultKind,
    json::{self, DEPTH_CAP, Kind, Parser, Value},
};

#[cfg(feature = "client")]
thread_local! {
    /// The path of the member that gRPC cannot carry.
    static MEMBER: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Clears the record for a new message.
pub fn forget() {
    #[cfg(feature = "client")]
    MEMBER.take();
}

/// The fault of the last written message, if it has such a member.
#[cfg(feature = "client")]
pub fn take() -> Option<Fault> {
    let member = MEMBER.take()?;
    let member = if member.is_empty() { "the answer" } else { &member };
    let why = format!(
        "{member} has half of a surrogate pair, which gRPC cannot carry; request it over another \
         binding"
    );
    Some(Fault::because(FaultKind::UnsupportedOperation, why))
}

/// Calls `write`, and records the member that gRPC could not carry. `push_json` writes the same
/// content as JSON, to find that member.
#[cfg(feature = "client")]
#[inline(always)] // Into the row of each generation.
pub fn noting<R>(write: impl FnOnce() -> R, push_json: impl FnOnce(&mut Vec<u8>)) -> R {
    json::take_halves();
    let written = write();
    if json::take_halves() {
        note(push_json);
    }
    written
}

#[cfg(feature = "client")]
#[cold]
fn note(push_json: impl FnOnce(&mut Vec<u8>)) {
    let (mut json, mut parser) = (Vec::new(), Parser::new());
    push_json(&mut json);
    parser.accept_lone_surrogates(true);
    let mut path = String::new();
    // A piece of a page is not a JSON document; the error then names the whole answer.
    if let Ok(value) = parser.parse(&json, DEPTH_CAP) {
        find(value, &mut path);
    }
    MEMBER.set(Some(path));
}

/// Whether a value has half of a surrogate pair; if so, `path` is its path.
#[cfg(feature = "client")]
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
        Kind::Null | Kind::Bool(_) | Kind::Number => {}
    }
    false
}

/// Always `None`.
#[cfg(not(feature = "client"))]
pub fn take() -> Option<Fault> {
    None
}

/// Calls `write`.
#[cfg(not(feature = "client"))]
#[inline(always)]
pub fn noting<R>(write: impl FnOnce() -> R, _: impl FnOnce(&mut Vec<u8>)) -> R {
    write()
}
