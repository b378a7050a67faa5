//! The content of a container: the keys and values of an object, the elements of an array.

use std::borrow::Cow;
use std::fmt;

use super::build::{Node, Tag};
use super::value::{Doc, Value, utf8};

/// The name of a member.
#[derive(Clone, Copy)]
pub struct MemberKey<'p> {
    doc: Doc<'p>,
    node: &'p Node,
}

impl<'p> MemberKey<'p> {
    /// The text between the quotes with its escapes as written.
    #[inline]
    #[must_use]
    pub fn raw(&self) -> &'p [u8] {
        self.doc.inner(self.node)
    }

    /// The text of the name, if it was written without escapes.
    #[inline]
    #[must_use]
    pub fn plain(&self) -> Option<&'p [u8]> {
        if self.node.tag == Tag::Plain { Some(self.doc.inner(self.node)) } else { None }
    }

    /// The text of the name; borrowed unless it has escapes.
    #[must_use]
    pub fn text(&self) -> Cow<'p, [u8]> {
        self.doc.text(self.node)
    }

    /// Whether the name is `text`; does not allocate.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // `PartialEq<str>` would read `key == *name`.
    pub fn eq(&self, text: &str) -> bool {
        self.doc.spells(self.node, text)
    }
}

impl fmt::Debug for MemberKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(utf8(self.raw()))
    }
}

/// The sibling nodes from `at` to before `end`.
#[derive(Clone, Copy)]
pub(super) struct Nodes<'p> {
    pub(super) doc: Doc<'p>,
    pub(super) at: u32,
    pub(super) end: u32,
}

/// Iterates over the members of an object; see [`Value::members`].
#[derive(Clone)]
pub struct Members<'p> {
    pub(super) nodes: Nodes<'p>,
}

impl<'p> Iterator for Members<'p> {
    type Item = (MemberKey<'p>, Value<'p>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Nodes { doc, at, end } = self.nodes;
        if at >= end {
            return None;
        }
        let (key, value) = (doc.nodes.get(at as usize)?, doc.value(at + 1)?);
        self.nodes.at = value.node.next;
        Some((MemberKey { doc, node: key }, value))
    }
}

/// Iterates over the elements of an array; see [`Value::elements`].
#[derive(Clone)]
pub struct Elements<'p> {
    pub(super) nodes: Nodes<'p>,
}

impl<'p> Iterator for Elements<'p> {
    type Item = Value<'p>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Nodes { doc, at, end } = self.nodes;
        if at >= end {
            return None;
        }
        let value = doc.value(at)?;
        self.nodes.at = value.node.next;
        Some(value)
    }
}
