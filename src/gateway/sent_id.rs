//! The ids of conversations and tasks at an upstream agent, which sees one caller: the gateway. Two
//! callers may choose the same id, and must not reach each other's conversations and tasks.

use std::borrow::Cow;

use ring::digest::{Context, SHA256};

use crate::model::{RawText, uuid};

/// The version of the UUIDs that are created here (RFC 9562 §5.8), and its index among the hex
/// digits.
const VERSION: u8 = b'8';
const VERSION_DIGIT: usize = 12;
/// The offset of the version in the text.
const VERSION_AT: usize = 14;

/// The upstream form of a context id, or of a task id of 0.1; `names`: the caller's tenant and
/// owner. The id of a caller without tenant and owner stays unchanged, unless it looks like a UUID
/// of another caller. Other ids become UUIDs, which are the same after a restart and in another
/// gateway.
pub fn sent_id<'t>(names: [Option<&str>; 2], id: RawText<'t>) -> Cow<'t, [u8]> {
    if names == [None, None] && !is_made_here(id) {
        return Cow::Borrowed(id.raw());
    }
    let mut hash = Context::new(&SHA256);
    for name in names {
        let length = name.map_or(u64::MAX, |name| name.len() as u64);
        hash.update(&length.to_be_bytes());
        hash.update(name.unwrap_or_default().as_bytes());
    }
    hash.update(id.raw());
    let digest = hash.finish();
    let bits = digest.as_ref().iter().take(16).fold(0, |bits, byte| bits << 8 | u128::from(*byte));
    let mut created = uuid(bits);
    created[VERSION_AT] = VERSION;
    Cow::Owned(created.to_vec())
}

/// Whether an id may be a UUID that was created here, in any notation.
fn is_made_here(id: RawText<'_>) -> bool {
    let mut digits = id.raw().iter().filter(|byte| byte.is_ascii_hexdigit());
    let is_version = digits.nth(VERSION_DIGIT) == Some(&VERSION);
    is_version && digits.count() >= 32 - VERSION_DIGIT - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(tenant: Option<&str>, owner: Option<&str>, id: &str) -> String {
        let id = sent_id([tenant, owner], RawText::known(id.as_bytes()));
        String::from_utf8_lossy(&id).into_owned()
    }

    #[test]
    fn callers_with_equal_ids_get_distinct_upstream_ids() {
        let of = |tenant, owner| sent(tenant, owner, "session-1");
        let all = [
            of(None, None),
            of(None, Some("alice")),
            of(Some("alice"), None),
            of(Some("ali"), Some("ce")),
            of(None, Some("bob")),
        ];
        for (index, id) in all.iter().enumerate() {
            assert!(!all[..index].contains(id), "{all:?}");
        }
        assert_eq!(all[0], "session-1");
        assert_eq!(all[1], of(None, Some("alice")));
        // An anonymous caller sends the UUID of another caller.
        let notations = [all[1].clone(), all[1].to_uppercase(), all[1].replace('-', "")];
        for id in notations {
            assert_ne!(sent(None, None, &id), id);
        }
        let fresh = String::from_utf8_lossy(&uuid(u128::MAX)).into_owned();
        assert_eq!(sent(None, None, &fresh), fresh);
    }
}
