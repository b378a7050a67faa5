//! Query strings as pairs (application/x-www-form-urlencoded, WHATWG URL §5.1).
//!
//! Pairs are split at `&` and at the first `=`, `+` is a space, and a broken escape is an error.
//! Text without escapes is borrowed.

use std::borrow::Cow;

use super::{Reject, escape};

/// A decoded name and value, or the reason why decoding failed.
pub type Pair<'q> = Result<(Cow<'q, str>, Cow<'q, str>), Reject>;

/// The pairs of a query, in order; empty pairs are skipped, a missing value is empty.
///
/// # Errors
/// An item is [`Reject::EscapeInvalid`] if an escape is broken or the result is not UTF-8.
pub fn pairs(query: &str) -> impl Iterator<Item = Pair<'_>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((escape::decode(name, true)?, escape::decode(value, true)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Vec<(String, String)>, Reject> {
        pairs(query).map(|p| p.map(|(n, v)| (n.into_owned(), v.into_owned()))).collect()
    }

    #[test]
    fn pairs_split_and_decode() {
        let want = [("a", "1 2"), ("b", ""), ("c", "x=y"), ("d", "&"), ("", "e")];
        let want: Vec<_> = want.map(|(n, v)| (n.to_string(), v.to_string())).into();
        assert_eq!(read("a=1+2&b&&c=x=y&d=%26&=e"), Ok(want));
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(read("&&&"), Ok(vec![]));
    }

    #[test]
    fn broken_escapes_are_errors() {
        for query in ["a=%", "%4=1", "a=%zz", "a=%ff"] {
            assert_eq!(read(query), Err(Reject::EscapeInvalid), "{query}");
        }
    }
}
