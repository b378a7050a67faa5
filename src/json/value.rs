//! Views into a parsed document: copies of two pointers and an index, without ownership.
//!
//! Every view names one node of the table and its source text; reading never changes or re-formats
//! that text. Accessors for another type return `None` and never panic.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::build::{Node, Tag};
use super::members::{Elements, Members, Nodes};
use super::number;
use super::text::{eq_unescaped, unescape};
use super::write::canonical_raw;

/// The type of a value. Numbers and strings carry no payload: read their text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number of any size and precision.
    Number,
    /// A string, with or without escapes.
    String,
    /// An array.
    Array,
    /// An object; keys may repeat.
    Object,
}

/// A parsed document: its text and its nodes, the root first.
#[derive(Clone, Copy)]
pub(super) struct Doc<'p> {
    src: &'p [u8],
    pub(super) nodes: &'p [Node],
}

impl<'p> Doc<'p> {
    /// The value at `at`. All indexes come from the table itself, so the value exists.
    #[inline]
    pub(super) fn value(self, at: u32) -> Option<Value<'p>> {
        Some(Value { doc: self, node: self.nodes.get(at as usize)?, at })
    }

    /// The text of `start..end`, which is in range.
    #[inline]
    fn span(self, start: usize, end: usize) -> &'p [u8] {
        match self.src.get(start..end) {
            Some(text) => text,
            None => nothing(),
        }
    }

    /// The text of a string node between its quotes.
    #[inline]
    pub(super) fn inner(self, node: &Node) -> &'p [u8] {
        self.span(node.start as usize, node.end as usize)
    }

    /// The text that a string node represents.
    #[inline]
    pub(super) fn text(self, node: &Node) -> Cow<'p, [u8]> {
        let raw = self.inner(node);
        if node.tag == Tag::Escaped { unescaped(raw) } else { Cow::Borrowed(raw) }
    }

    /// Whether the string node represents `text`.
    #[inline]
    pub(super) fn spells(self, node: &Node, text: &str) -> bool {
        match node.tag {
            Tag::Plain => self.inner(node) == text.as_bytes(),
            Tag::Escaped => eq_unescaped(utf8(self.inner(node)), text),
            Tag::Null | Tag::True | Tag::False | Tag::Number | Tag::Array | Tag::Object => false,
        }
    }
}

/// Cold, so that the impossible case compiles to a branch and not to a select.
#[cold]
fn nothing<'p>() -> &'p [u8] {
    b""
}

/// A span as text. Spans begin and end next to ASCII in a UTF-8 document, so it always is UTF-8.
pub(super) fn utf8(span: &[u8]) -> &str {
    str::from_utf8(span).unwrap_or_default()
}

#[cold]
#[inline(never)]
fn unescaped(raw: &[u8]) -> Cow<'_, [u8]> {
    Cow::Owned(unescape(utf8(raw)).into_owned().into_bytes())
}

#[cold]
#[inline(never)]
fn respelled(raw: &[u8]) -> Cow<'_, [u8]> {
    Cow::Owned(canonical_raw(utf8(raw)).into_owned().into_bytes())
}

/// The position of a member's value in its document, in four bytes; the default is no position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueSlot(u32);

/// One value of a parsed document, 48 bytes, free to copy.
///
/// The document is UTF-8, and so is every text of a value. Texts are returned as bytes, which needs
/// no check, or as `str` where needed.
#[derive(Clone, Copy)]
pub struct Value<'p> {
    doc: Doc<'p>,
    pub(super) node: &'p Node,
    at: u32,
}

impl<'p> Value<'p> {
    /// The value of a whole document; `None` when there are no nodes.
    #[inline]
    pub(super) fn root(src: &'p [u8], nodes: &'p [Node]) -> Option<Self> {
        Doc { src, nodes }.value(0)
    }

    /// The type of the value.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.node.tag {
            Tag::Null => Kind::Null,
            Tag::True => Kind::Bool(true),
            Tag::False => Kind::Bool(false),
            Tag::Number => Kind::Number,
            Tag::Plain | Tag::Escaped => Kind::String,
            Tag::Array => Kind::Array,
            Tag::Object => Kind::Object,
        }
    }

    /// The exact source text, without surrounding white space; strings keep their quotes.
    #[inline]
    #[must_use]
    pub fn raw(&self) -> &'p [u8] {
        let Range { start, end } = self.span();
        self.doc.span(start, end)
    }

    /// [`Value::raw`] as a `str`; linear in its length.
    #[must_use]
    pub fn raw_str(&self) -> &'p str {
        utf8(self.raw())
    }

    /// The byte range of [`Value::raw`] in the source.
    #[inline]
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        let quote = usize::from(is_text(self.node));
        self.node.start as usize - quote..self.node.end as usize + quote
    }

    /// The text between the quotes with its escapes as written; `None` unless a string.
    #[inline]
    #[must_use]
    pub fn string_raw(&self) -> Option<&'p [u8]> {
        if is_text(self.node) { Some(self.doc.inner(self.node)) } else { None }
    }

    /// [`Value::string_raw`] as a `str`; linear in its length.
    #[must_use]
    pub fn string_raw_str(&self) -> Option<&'p str> {
        self.string_raw().map(utf8)
    }

    /// The text between the quotes in canonical form, see [`canonical_raw`]; borrowed unless it has
    /// escapes. `None` unless a string.
    #[inline]
    #[must_use]
    pub fn string_canonical(&self) -> Option<Cow<'p, [u8]>> {
        let raw = self.string_raw()?;
        Some(if self.has_escapes() { respelled(raw) } else { Cow::Borrowed(raw) })
    }

    /// Whether this is a string with at least one backslash.
    #[inline]
    #[must_use]
    pub fn has_escapes(&self) -> bool {
        self.node.tag == Tag::Escaped
    }

    /// The text that a string represents; borrowed unless it has escapes. `None` unless a string.
    #[inline]
    #[must_use]
    pub fn text(&self) -> Option<Cow<'p, [u8]>> {
        if is_text(self.node) { Some(self.doc.text(self.node)) } else { None }
    }

    /// [`Value::text`] as a `str`; linear in its length.
    #[must_use]
    pub fn as_str(&self) -> Option<Cow<'p, str>> {
        let raw = utf8(self.string_raw()?);
        Some(if self.has_escapes() { unescape(raw) } else { Cow::Borrowed(raw) })
    }

    /// Whether this is a string that represents `text`; does not allocate.
    #[inline]
    #[must_use]
    pub fn str_eq(&self, text: &str) -> bool {
        self.doc.spells(self.node, text)
    }

    /// The number as an integer, if its exact value is an integer that fits: `1`, `1.0`, `1e2`,
    /// `-0`.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self.node.tag {
            Tag::Number => number::integer(self.raw_str()),
            Tag::Null
            | Tag::True
            | Tag::False
            | Tag::Plain
            | Tag::Escaped
            | Tag::Array
            | Tag::Object => None,
        }
    }

    /// `true` or `false`; `None` for other types.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.kind() {
            Kind::Bool(value) => Some(value),
            Kind::Null | Kind::Number | Kind::String | Kind::Array | Kind::Object => None,
        }
    }

    /// Whether this is `null`.
    #[inline]
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.node.tag == Tag::Null
    }

    /// Whether this is a string.
    #[inline]
    #[must_use]
    pub fn is_string(&self) -> bool {
        is_text(self.node)
    }

    /// The first member of that name, names compared unescaped; `None` unless an object.
    /// Linear in the number of members.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'p>> {
        self.members().find(|(name, _)| name.eq(key)).map(|(_, value)| value)
    }

    /// The members of an object in source order, repeated keys included; empty for other types.
    #[inline]
    #[must_use]
    pub fn members(&self) -> Members<'p> {
        Members { nodes: self.children(Tag::Object) }
    }

    /// The elements of an array in source order; empty for other types.
    #[inline]
    #[must_use]
    pub fn elements(&self) -> Elements<'p> {
        Elements { nodes: self.children(Tag::Array) }
    }

    /// Whether the value has neither elements nor members; constant time.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.node.next == self.at + 1
    }

    /// The position of this value; a whole document has no position.
    #[inline]
    #[must_use]
    pub fn slot(&self) -> ValueSlot {
        ValueSlot(self.at)
    }

    /// The value at `slot` of the same document; `None` without a position.
    #[inline]
    #[must_use]
    pub fn at(&self, slot: ValueSlot) -> Option<Value<'p>> {
        if slot.0 == 0 { None } else { self.doc.value(slot.0) }
    }

    /// The nodes below this node if it has that tag, otherwise no nodes.
    #[inline]
    fn children(&self, tag: Tag) -> Nodes<'p> {
        let end = if self.node.tag == tag { self.node.next } else { 0 };
        Nodes { doc: self.doc, at: self.at + 1, end }
    }
}

#[inline]
fn is_text(node: &Node) -> bool {
    matches!(node.tag, Tag::Plain | Tag::Escaped)
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw_str())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::json::{Kind, Parser};

    const DOC: &str = r#" { "a" : [ 1 , -2.50e1 ,true,false , null ] ,"b\u0041":"x\"y" ,
        "b":{"":{}} , "a":"z" , "t": "\t\\" } "#;

    #[test]
    fn raw_is_the_source_text() {
        let mut parser = Parser::new();
        let root = parser.parse(DOC.as_bytes(), 8).unwrap();
        assert_eq!(root.raw_str(), DOC.trim());
        assert_eq!(&DOC[root.span()], root.raw_str());
        let a = root.get("a").unwrap();
        assert_eq!(a.raw_str(), "[ 1 , -2.50e1 ,true,false , null ]");
        let raws: Vec<_> = a.elements().map(|v| v.raw_str()).collect();
        assert_eq!(raws, ["1", "-2.50e1", "true", "false", "null"]);
        let keys: Vec<_> = root.members().map(|(k, _)| format!("{k:?}")).collect();
        assert_eq!(keys, ["a", "b\\u0041", "b", "a", "t"]);
        assert_eq!(root.get("b").unwrap().raw_str(), r#"{"":{}}"#);
        assert_eq!(root.get("b").unwrap().get("").unwrap().raw_str(), "{}");
        assert_eq!(format!("{a:?}"), a.raw_str());
    }

    #[test]
    fn strings_compare_unescaped() {
        let mut parser = Parser::new();
        let root = parser.parse(DOC.as_bytes(), 8).unwrap();
        let value = root.get("bA").unwrap();
        assert_eq!(value.string_raw(), Some(&b"x\\\"y"[..]));
        assert_eq!(value.as_str().unwrap(), "x\"y");
        assert!(value.has_escapes() && value.str_eq("x\"y"));
        assert!(!value.str_eq("x\"") && !value.str_eq("x\"yz") && !value.str_eq("x\\\"y"));
        let escaped = root.get("t").unwrap();
        assert!(escaped.has_escapes() && escaped.str_eq("\t\\"));
        assert_eq!(root.members().nth(1).unwrap().0.text(), &b"bA"[..]);
        assert!(root.get("c").is_none() && root.get("b\\u0041").is_none());
    }

    #[test]
    fn accessors_return_none_for_other_types() {
        let mut parser = Parser::new();
        let root = parser.parse(DOC.as_bytes(), 8).unwrap();
        let a: Vec<_> = root.get("a").unwrap().elements().collect();
        let kinds: Vec<_> = a.iter().map(|v| v.kind()).collect();
        let expected =
            [Kind::Number, Kind::Number, Kind::Bool(true), Kind::Bool(false), Kind::Null];
        assert_eq!(kinds, expected);
        assert_eq!((a[0].as_i64(), a[1].as_i64(), a[2].as_i64()), (Some(1), Some(-25), None));
        assert_eq!(
            (a[2].as_bool(), a[3].as_bool(), a[4].as_bool()),
            (Some(true), Some(false), None)
        );
        assert!(a[4].is_null() && !a[0].is_null() && a[0].as_str().is_none());
        assert!(!a[0].str_eq("1") && a[0].get("x").is_none());
        assert!(a[0].elements().next().is_none() && a[0].is_empty());
        assert_eq!((root.members().count(), a.len(), a[0].elements().count()), (5, 5, 0));
        assert!(root.elements().next().is_none() && !root.is_empty());
        assert!(root.get("a").unwrap().members().next().is_none());
        assert_eq!((root.kind(), root.get("a").unwrap().kind()), (Kind::Object, Kind::Array));
        assert_eq!(root.get("t").unwrap().kind(), Kind::String);
    }
}
