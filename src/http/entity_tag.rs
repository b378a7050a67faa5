//! Entity tags, with which a client checks whether its copy is current.

/// A strong entity tag with its quotes (RFC 9110 §8.8.3): 128-bit FNV-1a of the bytes, in hex.
///
/// Equal bytes have equal tags in every process. The hash is not secure against forgery, which a
/// card does not need.
pub fn etag(bytes: &[u8]) -> [u8; 34] {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let hash =
        bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    let mut tag = [b'"'; 34];
    for (index, digit) in tag[1..33].iter_mut().enumerate() {
        *digit = HEX[(hash >> (124 - 4 * index)) as usize & 15];
    }
    tag
}

/// True when `If-None-Match` names `etag`, so that GET and HEAD are answered with 304.
///
/// `field` is the field's value (several fields: joined by commas, or one call for each); `etag`
/// includes its quotes and may be weak. A list is read up to its first invalid entity tag.
pub fn none_match_names(field: &[u8], etag: &[u8]) -> bool {
    // RFC 9110 §13.1.2: "*" is false for any current representation.
    if field.trim_ascii() == b"*" {
        return true;
    }
    let Some((wanted, _)) = opaque_tag(etag) else {
        return false;
    };
    let mut rest = field;
    loop {
        // RFC 9110 §5.6.1.2: empty members of a list are ignored.
        while let Some((b' ' | b'\t' | b',', after)) = rest.split_first() {
            rest = after;
        }
        match opaque_tag(rest) {
            Some((tag, _)) if tag == wanted => return true,
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
}

/// The text between the quotes of the entity tag at the start, and the text after the tag.
///
/// RFC 9110 §8.8.3.2: a weak comparison ignores `W/`. A tag may contain commas.
fn opaque_tag(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let quoted = bytes.strip_prefix(b"W/").unwrap_or(bytes).strip_prefix(b"\"")?;
    let end = quoted.iter().position(|&byte| byte == b'"')?;
    Some((&quoted[..end], &quoted[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_fnv_1a() {
        assert_eq!(&etag(b""), b"\"6c62272e07bb014262b821756295c58d\"");
        assert_eq!(&etag(b"a"), b"\"d228cb696f1a8caf78912b704e4a8964\"");
        assert_ne!(etag(b"ab"), etag(b"ba"));
    }

    #[test]
    fn if_none_match_matches_listed_tag_or_wildcard() {
        let tag = b"\"abc\"";
        for field in [
            "*",
            " * ",
            "\"abc\"",
            "W/\"abc\"",
            "\"x\", \"abc\"",
            "\"x\",W/\"abc\"",
            ",, \"abc\" ,",
            "\"a,b\" ,\t\"abc\"",
            "\"\", \"abc\"",
        ] {
            assert!(none_match_names(field.as_bytes(), tag), "{field}");
            assert!(none_match_names(field.as_bytes(), b"W/\"abc\""), "{field}");
        }
    }

    #[test]
    fn if_none_match_ignores_other_and_malformed_tags() {
        for field in [
            "",
            ",",
            "abc",
            "\"ab\"",
            "\"abcd\"",
            "\"ABC\"",
            "w/\"abc\"",
            "\"abc",
            "abc\"",
            "\"*\"",
            "*, \"x\"",
            "x, \"abc\"",
            "\"x, \"abc\"",
            "W/abc",
        ] {
            assert!(!none_match_names(field.as_bytes(), b"\"abc\""), "{field}");
        }
        assert!(!none_match_names(b"\"abc\"", b"abc"));
    }
}
