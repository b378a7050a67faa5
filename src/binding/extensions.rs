//! Extensions (wire §1.8): which of them a request asks for, and which are in effect, because the
//! agent has them, too. An answer names those.

use crate::{
    http::{Field, FieldLinesBuf, Head},
    model::Profile,
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

/// The URIs of `named`, comma separated, that the agent declares, each once and in that order.
pub fn in_effect<'a>(profile: &Profile, named: &'a str) -> Vec<&'a str> {
    let mut uris = Vec::new();
    for uri in named.split(',').map(str::trim) {
        let is_declared = profile.extensions.iter().any(|extension| extension.uri == uri);
        // What is no visible ASCII is no URI, and has no place in a head.
        if is_declared && uri.bytes().all(|b| b.is_ascii_graphic()) && !uris.contains(&uri) {
            uris.push(uri);
        }
    }
    uris
}

/// The fields for the head of the answer, under the names that the request has for them.
pub fn fields(profile: &Profile, head: &Head<'_>) -> FieldLinesBuf {
    let mut fields = FieldLinesBuf::default();
    for name in FIELDS {
        let named = named_in(head, &[name]);
        let uris = in_effect(profile, &named);
        if !uris.is_empty() {
            fields.push(name, &uris.join(", "));
        }
    }
    fields
}
