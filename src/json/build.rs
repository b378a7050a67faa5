//! Turns the structural indexes of a document into a table of exact source spans.
//!
//! Law: simd-json has seen that the bytes are UTF-8, that strings end and hold no control
//! characters, and has marked where each of `{}[]:,`, each string and each other scalar begins.
//! All else is checked here: the order of the marks, escapes, numbers and words. A scalar ends
//! at the last byte before the next mark that is not white space. Nodes are in document order, a
//! container before what it holds.

use super::slow;

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

/// What the unused end of a table is filled with.
const BLANK: Node = Node { start: 0, end: 0, next: 0, tag: Tag::Null };

/// Marks the absence of an open container; no table is that long.
const NONE: u32 = u32::MAX;

/// A document whose bytes simd-json has marked.
pub(super) struct Marked<'b> {
    pub(super) src: &'b [u8],
    pub(super) marks: &'b [u32],
    /// Whether there is any backslash.
    pub(super) escapes: bool,
}

/// Fills `nodes`, which only ever grows, and says how many there are; `None` when the document is
/// invalid or deeper than `depth_max`, which [`slow`] tells apart.
///
/// While a container is open its `end` holds the index of the container around it.
pub(super) fn build(nodes: &mut Vec<Node>, doc: &Marked<'_>, depth_max: usize) -> Option<usize> {
    if nodes.len() < doc.marks.len() {
        nodes.resize(doc.marks.len(), BLANK);
    }
    let (src, marks) = (doc.src, doc.marks.iter());
    let mut walk = Walk { src, marks, escapes: doc.escapes, nodes, count: 0 };
    let (mut open, mut inside, mut depth) = (NONE, Tag::Null, 0);
    let mut here = walk.step()?;
    loop {
        // A value begins here; behind it is a comma, a closing bracket or the end.
        let mut after = match here.byte {
            b'"' => {
                let after = walk.step();
                walk.string(here.at, after)?;
                after
            }
            b'{' | b'[' => {
                depth += 1;
                if depth > depth_max {
                    return None;
                }
                inside = if here.byte == b'{' { Tag::Object } else { Tag::Array };
                open = walk.push(here.at, open, inside)?;
                here = walk.step()?;
                match (here.byte, inside) {
                    (b'}', Tag::Object) | (b']', Tag::Array) => Some(here),
                    (_, Tag::Object) => {
                        here = walk.key(here)?;
                        continue;
                    }
                    _ => continue,
                }
            }
            _ => {
                let after = walk.step();
                walk.scalar(here, after)?;
                after
            }
        };
        here = loop {
            let Some(mark) = after else {
                return (open == NONE).then_some(walk.count as usize);
            };
            match (mark.byte, inside) {
                (b',', Tag::Object) => {
                    let key = walk.step()?;
                    break walk.key(key)?;
                }
                (b',', Tag::Array) => break walk.step()?,
                (b'}', Tag::Object) | (b']', Tag::Array) => {
                    (open, inside) = walk.close(open, mark.at)?;
                    depth -= 1;
                    after = walk.step();
                }
                _ => return None,
            }
        };
    }
}

/// One structural index and the byte that stands there.
#[derive(Clone, Copy)]
struct Mark {
    at: u32,
    byte: u8,
}

/// The marks that are left and the nodes that are made, `count <= nodes.len()`.
struct Walk<'b> {
    src: &'b [u8],
    marks: std::slice::Iter<'b, u32>,
    escapes: bool,
    nodes: &'b mut [Node],
    count: u32,
}

impl Walk<'_> {
    #[inline]
    fn step(&mut self) -> Option<Mark> {
        let at = *self.marks.next()?;
        // A mark beyond the source would be simd-json's error; no value begins with a zero byte.
        Some(Mark { at, byte: self.src.get(at as usize).copied().unwrap_or(0) })
    }

    #[inline]
    fn push(&mut self, start: u32, end: u32, tag: Tag) -> Option<u32> {
        let index = self.count;
        *self.nodes.get_mut(index as usize)? = Node { start, end, next: index + 1, tag };
        self.count += 1;
        Some(index)
    }

    /// Ends the container `open` and yields the one around it.
    #[inline]
    fn close(&mut self, open: u32, mark: u32) -> Option<(u32, Tag)> {
        let node = self.nodes.get_mut(open as usize)?;
        let outer = node.end;
        node.end = mark + 1;
        node.next = self.count;
        Some((outer, self.nodes.get(outer as usize).map_or(Tag::Null, |node| node.tag)))
    }

    /// The end of the scalar before the mark `after`.
    #[inline]
    fn end(&self, after: Option<Mark>) -> u32 {
        let mut end = after.map_or(self.src.len(), |mark| mark.at as usize);
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.src.get(end.wrapping_sub(1)) {
            end -= 1;
        }
        end as u32
    }

    /// A key and its colon; yields the mark of its value.
    #[inline]
    fn key(&mut self, key: Mark) -> Option<Mark> {
        let colon = self.step()?;
        if key.byte != b'"' || colon.byte != b':' {
            return None;
        }
        self.string(key.at, Some(colon))?;
        self.step()
    }

    #[inline]
    fn string(&mut self, start: u32, after: Option<Mark>) -> Option<()> {
        let end = self.end(after);
        let tag = if self.escapes { self.spelling(start, end)? } else { Tag::Plain };
        self.push(start, end, tag).map(drop)
    }

    /// Whether a string has escapes, if they are valid.
    #[inline(never)]
    fn spelling(&self, start: u32, end: u32) -> Option<Tag> {
        let text = self.src.get(start as usize..end as usize)?;
        if !text.contains(&b'\\') {
            return Some(Tag::Plain);
        }
        slow::is_string(text).then_some(Tag::Escaped)
    }

    #[inline]
    fn scalar(&mut self, mark: Mark, after: Option<Mark>) -> Option<()> {
        let end = self.end(after);
        let tag = match self.src.get(mark.at as usize..end as usize)? {
            b"true" => Tag::True,
            b"false" => Tag::False,
            b"null" => Tag::Null,
            [b'1'..=b'9'] => Tag::Number,
            text if slow::is_number(text) => Tag::Number,
            _ => return None,
        };
        self.push(mark.at, end, tag).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_sixteen_bytes() {
        assert_eq!(size_of::<Node>(), 16);
    }

    #[test]
    fn marks_that_do_not_fit_are_refused() {
        let mut nodes = Vec::new();
        for marks in [&[][..], &[0], &[0, 1, 1], &[1], &[0, 9], &[0, 1, 9]] {
            let doc = Marked { src: b"[]", marks, escapes: false };
            assert_eq!(build(&mut nodes, &doc, 4), None, "{marks:?}");
        }
        let doc = Marked { src: b"[]", marks: &[0, 1], escapes: false };
        assert_eq!(build(&mut nodes, &doc, 4), Some(1));
    }
}
