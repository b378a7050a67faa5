//! Extensions (wire §1.8): which of them a request asks for, and which are in effect, because the
//! agent or the server has them, too. An answer names those.

use crate::{
    binding::ServerConfig,
    http::{Field, FieldLinesBuf, Head},
    model::{Extension, Profile},
};

/// The fields that name extensions, of 1.0 and of 0.3 (wire §1.8).
pub const FIELDS: [&str; 2] = ["A2A-Extensions", "X-A2A-Extensions"];

/// Whether a request asks for any extension.
#[inline(always)]
pub fn are_named(head: &Head<'_>) -> bool {
    head.value(Field::A2aExtensions).is_some() || head.value(Field::XA2aExtensions).is_some()
}

/// All extensions that a request asks for, comma separated.
#[inline(always)]
pub fn joined(head: &Head<'_>) -> Option<String> {
    are_named(head).then(|| named_in(head, &FIELDS))
}

/// RFC 9110 §5.3: repeated fields are one list, here of all that have one of these names.
#[cold]
pub fn named_in(head: &Head<'_>, names: &[&str]) -> String {
    let values: Vec<_> =
        names.iter().flat_map(|name| head.values(name)).map(String::from_utf8_lossy).collect();
    values.join(",")
}

/// What a caller can have.
#[derive(Clone, Copy)]
pub struct DeclaredExtensions<'x> {
    /// What the agent declares.
    pub profile: &'x Profile,
    /// What the server declares beside it.
    pub config: &'x ServerConfig,
    /// True: the caller is known.
    pub is_known: bool,
}

impl DeclaredExtensions<'_> {
    fn has(self, uri: &str) -> bool {
        let is_of_server = match uri {
            Extension::LONG_POLL => self.config.long_poll,
            Extension::PUSH_EVENTS => self.config.push,
            Extension::IDEMPOTENT_SEND => {
                let whose = self.config.idempotent_send;
                whose.is_some_and(|whose| self.is_known || whose != "authenticated")
            }
            _ => false,
        };
        is_of_server || self.profile.extensions.iter().any(|extension| extension.uri == uri)
    }
}

/// The URIs of `named`, comma separated, that are declared, each once and in that order.
pub fn in_effect<'a>(declared: DeclaredExtensions<'_>, named: &'a str) -> Vec<&'a str> {
    let mut uris = Vec::new();
    for uri in named.split(',').map(str::trim) {
        // What is no visible ASCII is no URI, and has no place in a head.
        if declared.has(uri) && uri.bytes().all(|b| b.is_ascii_graphic()) && !uris.contains(&uri) {
            uris.push(uri);
        }
    }
    uris
}

/// The fields for the head of the answer, under the names that the request has for them.
pub fn fields(declared: DeclaredExtensions<'_>, head: &Head<'_>) -> FieldLinesBuf {
    let mut fields = FieldLinesBuf::default();
    for name in FIELDS {
        let named = named_in(head, &[name]);
        let uris = in_effect(declared, &named);
        if !uris.is_empty() {
            fields.push(name, &uris.join(", "));
        }
    }
    fields
}
