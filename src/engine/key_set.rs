//! The public keys of all signers of a server, in one JWK set.
//!
//! Invariant: each key is copied byte by byte; an invalid set is ignored.

use crate::json::{DEPTH_CAP, Parser};

/// A JWK set (RFC 7517 §5) with the keys of all `sets`; `None`: `sets` is empty.
pub fn of(sets: &[&[u8]]) -> Option<Box<[u8]>> {
    if let [] | [_] = sets {
        return sets.first().map(|set| Box::from(*set));
    }
    let mut parser = Parser::new();
    let mut out = b"{\"keys\":[".to_vec();
    let start = out.len();
    for set in sets {
        let Ok(set) = parser.parse(set, DEPTH_CAP) else { continue };
        for key in set.get("keys").iter().flat_map(|keys| keys.elements()) {
            if out.len() > start {
                out.push(b',');
            }
            out.extend_from_slice(key.raw());
        }
    }
    out.extend_from_slice(b"]}");
    Some(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_sets_are_merged_and_single_set_is_unchanged() {
        let of = |sets: &[&str]| {
            let sets: Vec<&[u8]> = sets.iter().map(|set| set.as_bytes()).collect();
            of(&sets).map(|set| String::from_utf8_lossy(&set).into_owned())
        };
        let (one, two) =
            (r#"{"keys":[{"a":1},{"b":[2]}], "x":0}"#, r#"{ "keys" : [ {"c":"]"} ] }"#);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[one]).as_deref(), Some(one));
        let both = r#"{"keys":[{"a":1},{"b":[2]},{"c":"]"}]}"#;
        assert_eq!(of(&[one, two]).as_deref(), Some(both));
        for none in ["", "{", "[]", "{}", r#"{"keys":1}"#, r#"{"keys":[]}"#] {
            assert_eq!(of(&[none, two]).as_deref(), Some(r#"{"keys":[{"c":"]"}]}"#), "{none}");
        }
    }
}
