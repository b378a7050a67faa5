//! Extensions (wire §1.8). A request lists the extensions that it activates; those that the agent
//! or the server also declares are in effect, and the answer lists them.

use crate::{
    binding::ServerConfig,
    http::{Field, FieldLinesBuf, Head},
    model::{Extension, Profile},
};

/// The header fields with extensions, of 1.0 and of 0.3 (wire §1.8).
pub const FIELDS: [&str; 2] = ["A2A-Extensions", "X-A2A-Extensions"];

/// Whether a request activates any extension.
#[inline(always)]
pub fn are_named(head: &Head<'_>) -> bool {
    head.value(Field::A2aExtensions).is_some() || head.value(Field::XA2aExtensions).is_some()
}

/// All extensions that a request activates, comma separated.
#[inline(always)]
pub fn joined(head: &Head<'_>) -> Option<String> {
    are_named(head).then(|| named_in(head, &FIELDS))
}

/// RFC 9110 §5.3: repeated fields are one list. Here the fields of all `names` form one list.
#[cold]
pub fn named_in(head: &Head<'_>, names: &[&str]) -> String {
    let values: Vec<_> =
        names.iter().flat_map(|name| head.values(name)).map(String::from_utf8_lossy).collect();
    values.join(",")
}

/// The extensions available to a caller.
#[derive(Clone, Copy)]
pub struct DeclaredExtensions<'x> {
    /// The extensions of the agent.
    pub profile: &'x Profile,
    /// The extensions of the server.
    pub config: &'x ServerConfig,
    /// True: the caller is authenticated.
    pub is_authenticated: bool,
}

impl DeclaredExtensions<'_> {
    fn has(self, uri: &str) -> bool {
        let is_of_server = match uri {
            Extension::LONG_POLL => self.config.long_poll,
            Extension::PUSH_EVENTS => self.config.push,
            Extension::IDEMPOTENT_SEND => {
                let callers = self.config.idempotent_send;
                callers.is_some_and(|callers| self.is_authenticated || callers != "authenticated")
            }
            _ => false,
        };
        is_of_server || self.profile.extensions.iter().any(|extension| extension.uri == uri)
    }
}

/// The declared URIs in the comma-separated list `named`, in its order and without duplicates.
pub fn in_effect<'a>(declared: DeclaredExtensions<'_>, named: &'a str) -> Vec<&'a str> {
    let mut uris = Vec::new();
    for uri in named.split(',').map(str::trim) {
        // A URI is visible ASCII; other characters would not be valid in a head.
        if declared.has(uri) && uri.bytes().all(|b| b.is_ascii_graphic()) && !uris.contains(&uri) {
            uris.push(uri);
        }
    }
    uris
}

/// The fields of the answer that list the extensions in effect, under the names that the request
/// uses.
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
