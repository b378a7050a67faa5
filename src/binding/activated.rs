//! The extensions that are in effect for a request, which its answer names (wire §1.8): those that
//! the client asks for and the agent has.

use super::asked::{EXTENSION_FIELDS, extensions_in};
use crate::{http::Head, model::Profile};

/// The URIs of `asked`, comma separated, that the agent declares, each once and in that order.
pub fn activated<'a>(profile: &Profile, asked: &'a str) -> Vec<&'a str> {
    let mut uris = Vec::new();
    for uri in asked.split(',').map(str::trim) {
        let is_declared = profile.extensions.iter().any(|extension| extension.uri == uri);
        // What is no visible ASCII is no URI, and has no place in a head.
        if is_declared && uri.bytes().all(|b| b.is_ascii_graphic()) && !uris.contains(&uri) {
            uris.push(uri);
        }
    }
    uris
}

/// The fields for the head of the answer, under the names that the request has for them.
pub fn fields(profile: &Profile, head: &Head<'_>) -> Vec<u8> {
    let mut fields = Vec::new();
    for name in EXTENSION_FIELDS {
        let asked = extensions_in(head, &[name]);
        let uris = activated(profile, &asked);
        if !uris.is_empty() {
            fields.extend_from_slice(format!("{name}: {}\r\n", uris.join(", ")).as_bytes());
        }
    }
    fields
}
