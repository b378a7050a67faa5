//! Turns simd-json's tape and its structural indexes into a table of exact source spans.
//!
//! Law: each node of the tape begins at exactly one structural index; the indexes left over are
//! the commas, colons and closing brackets. A scalar ends at the last byte before the next index
//! that is not white space. Nodes are in document order, a container before what it holds.

use simd_json::StaticNode;
use simd_json::value::tape::Node as TapeNode;

use super::JsonError;

/// What a node is; strings are told apart by whether their text holds a backslash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Null,
    True,
    False,
    Number,
    Plain,
    Escaped,
    Array,
    Object,
}

/// One value or key: its bytes are `src[start..end]`, its subtree ends before node `next`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) next: u32,
    pub(super) tag: Tag,
}

/// Marks the absence of an open container; no table is that long.
const NONE: u32 = u32::MAX;

/// The tape and the indexes do not belong together. Unreachable with simd-json 0.19, and an
/// error instead of a panic should a later one break its promise.
const TORN: JsonError = JsonError::Syntax { offset: 0 };

/// Fills `nodes` from the tape of `src`; `marks` are the structural indexes of the same run.
///
/// While a container is open its `end` holds the index of the container around it.
pub(super) fn build(
    nodes: &mut Vec<Node>,
    tape: &[TapeNode<'_>],
    marks: &[u32],
    src: &[u8],
    depth_max: usize,
) -> Result<(), JsonError> {
    nodes.clear();
    nodes.reserve(tape.len());
    let mut marks = marks.iter();
    let mut open = NONE;
    let mut depth = 0;
    for node in tape {
        let start = *marks.next().ok_or(TORN)?;
        let index = nodes.len() as u32;
        let (tag, end) = match *node {
            TapeNode::String(text) => {
                let end = scalar_end(src, marks.as_slice());
                let plain = (end as usize).wrapping_sub(start as usize) == text.len() + 2;
                (if plain { Tag::Plain } else { Tag::Escaped }, end)
            }
            TapeNode::Static(StaticNode::Null) => (Tag::Null, start + 4),
            TapeNode::Static(StaticNode::Bool(true)) => (Tag::True, start + 4),
            TapeNode::Static(StaticNode::Bool(false)) => (Tag::False, start + 5),
            TapeNode::Static(StaticNode::I64(_) | StaticNode::U64(_) | StaticNode::F64(_)) => {
                (Tag::Number, scalar_end(src, marks.as_slice()))
            }
            TapeNode::Object { .. } => (Tag::Object, open),
            TapeNode::Array { .. } => (Tag::Array, open),
        };
        nodes.push(Node { start, end, next: index + 1, tag });
        if matches!(tag, Tag::Object | Tag::Array) {
            open = index;
            depth += 1;
            if depth > depth_max {
                return Err(JsonError::Depth);
            }
        }
        // What follows a node: closing brackets, then at most one comma or colon.
        while let Some(&mark) = marks.as_slice().first() {
            let byte = *src.get(mark as usize).ok_or(TORN)?;
            if !matches!(byte, b',' | b':' | b'}' | b']') {
                break;
            }
            marks.next();
            if matches!(byte, b',' | b':') {
                break;
            }
            let node = nodes.get_mut(open as usize).ok_or(TORN)?;
            open = node.end;
            node.end = mark + 1;
            node.next = index + 1;
            depth -= 1;
        }
    }
    let whole = open == NONE && !nodes.is_empty() && marks.len() == 0;
    if whole { Ok(()) } else { Err(TORN) }
}

/// The end of a string or number; `marks` are the structural indexes after its own.
#[inline]
fn scalar_end(src: &[u8], marks: &[u32]) -> u32 {
    let mut end = marks.first().map_or(src.len(), |&next| next as usize);
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = src.get(end.wrapping_sub(1)) {
        end -= 1;
    }
    end as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_sixteen_bytes() {
        assert_eq!(size_of::<Node>(), 16);
    }

    #[test]
    fn a_torn_tape_is_an_error() {
        let mut nodes = Vec::new();
        let none = TapeNode::Static(StaticNode::Null);
        let array = TapeNode::Array { len: 0, count: 0 };
        for (tape, marks) in [
            (&[][..], &[0_u32][..]),
            (&[none, none], &[0]),
            (&[], &[]),
            (&[array], &[0]),
            (&[array], &[0, 1, 1]),
        ] {
            assert_eq!(build(&mut nodes, tape, marks, b"[]", 4), Err(TORN), "{tape:?} {marks:?}");
        }
    }
}
