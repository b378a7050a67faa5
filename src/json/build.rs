//! Turns the structural indexes of a document into a table of exact source spans.
//!
//! Invariant: simd-json has checked that the bytes are UTF-8 and that strings end and contain no
//! control characters, and has marked the start of each of `{}[]:,`, of each string and of each
//! other scalar. This module checks the rest: the order of the marks, escapes, numbers and words. A
//! scalar ends at the last byte before the next mark that is not white space. Nodes are in document
//! order, a container before its content.

use super::slow;

/// The kind of a node; strings differ by whether their text has a backslash.
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

/// One value or key: its bytes are `src[start..end]`, for a string the bytes between its quotes;
/// its subtree ends before node `next`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) next: u32,
    pub(super) tag: Tag,
}

/// Fills the unused end of a table.
const BLANK: Node = Node { start: 0, end: 0, next: 0, tag: Tag::Null };

/// Marks the absence of an open container; no table is that long.
const NONE: usize = u32::MAX as usize;

/// A document with simd-json's marks.
pub(super) struct Marked<'b> {
    pub(super) src: &'b [u8],
    pub(super) marks: &'b [u32],
    /// True: the document contains a backslash.
    pub(super) escapes: bool,
}

/// Closes the outermost level: not a byte of UTF-8.
const ROOT: u8 = 0xff;

/// The minimum size of a table: a usual envelope has 20 nodes.
const NODES_MIN: usize = 256;

/// Why a table is not finished.
enum Stop {
    /// The table is too short.
    Full,
    /// The document is invalid or too deep.
    Invalid,
}

/// Fills `nodes`, which only ever grows, and returns their number; `None` when the document is
/// invalid or deeper than `depth_max`, which [`slow`] distinguishes.
///
/// There is at most one node for a mark, but the table grows by actual use, so that a document that
/// is rejected at its start does not cost memory for its whole length.
pub(super) fn build(nodes: &mut Vec<Node>, doc: &Marked<'_>, depth_max: usize) -> Option<usize> {
    loop {
        let count = match doc.escapes {
            _ if doc.marks.len() == 1 => lone(nodes, doc),
            true => fill::<true>(nodes, doc, depth_max),
            false => fill::<false>(nodes, doc, depth_max),
        };
        match count {
            Ok(count) => return Some(count),
            Err(Stop::Full) if nodes.len() < doc.marks.len() => {}
            Err(Stop::Full | Stop::Invalid) => return None,
        }
        let most = doc.marks.len().max(NODES_MIN);
        nodes.resize((nodes.len() * 4).clamp(NODES_MIN, most), BLANK);
    }
}

/// A separate function for better register allocation.
///
/// While a container is open its `end` holds the index of the container around it.
#[inline(never)]
fn fill<const ESCAPES: bool>(
    nodes: &mut [Node],
    doc: &Marked<'_>,
    depth_max: usize,
) -> Result<usize, Stop> {
    let mut table = NodeTable::<ESCAPES> { src: doc.src, nodes, count: 0 };
    // `mark` is the next mark, `marks` are the marks after it.
    let (mut mark, mut marks) = next(doc.marks)?;
    if !matches!(table.byte(mark), b'{' | b'[') {
        return Err(Stop::Invalid);
    }
    let (mut open, mut closer, mut depth_remaining) = (NONE, ROOT, depth_max);
    loop {
        // A member or an element begins here.
        let value;
        if closer == b'}' {
            let &[colon, member, after, ref rest @ ..] = marks else { return Err(Stop::Invalid) };
            if table.byte(mark) != b'"' || table.byte(colon as usize) != b':' {
                return Err(Stop::Invalid);
            }
            table.string(mark, colon as usize)?;
            (value, mark, marks) = (member as usize, after as usize, rest);
        } else {
            let &[after, ref rest @ ..] = marks else { return Err(Stop::Invalid) };
            (value, mark, marks) = (mark, after as usize, rest);
        }
        match table.byte(value) {
            bracket @ (b'{' | b'[') => {
                depth_remaining = depth_remaining.checked_sub(1).ok_or(Stop::Invalid)?;
                // In ASCII the closing bracket is two bytes later.
                closer = bracket + 2;
                let outer = std::mem::replace(&mut open, table.count);
                let tag = if bracket == b'{' { Tag::Object } else { Tag::Array };
                table.push(value, outer, tag)?;
                if table.byte(mark) != closer {
                    continue;
                }
            }
            b'"' => table.string(value, mark)?,
            byte => table.scalar(byte, value, mark)?,
        }
        // Then closing brackets follow, and after them a comma or the end.
        while table.byte(mark) == closer {
            open = table.close(open, mark).ok_or(Stop::Invalid)?;
            depth_remaining += 1;
            let Some(around) = table.nodes.get(open) else {
                return if marks.is_empty() { Ok(table.count) } else { Err(Stop::Invalid) };
            };
            closer = if around.tag == Tag::Object { b'}' } else { b']' };
            (mark, marks) = next(marks)?;
        }
        if table.byte(mark) != b',' {
            return Err(Stop::Invalid);
        }
        (mark, marks) = next(marks)?;
    }
}

/// The next mark, and the marks after it.
#[inline]
fn next(marks: &[u32]) -> Result<(usize, &[u32]), Stop> {
    marks.split_first().map(|(first, rest)| (*first as usize, rest)).ok_or(Stop::Invalid)
}

/// The table of a document that is one scalar.
#[cold]
fn lone(nodes: &mut [Node], doc: &Marked<'_>) -> Result<usize, Stop> {
    let mut table = NodeTable::<true> { src: doc.src, nodes, count: 0 };
    let (start, _) = next(doc.marks)?;
    match table.byte(start) {
        b'"' => table.string(start, doc.src.len())?,
        byte => table.scalar(byte, start, doc.src.len())?,
    }
    Ok(table.count)
}

/// The nodes so far, `count <= nodes.len()`.
struct NodeTable<'b, const ESCAPES: bool> {
    src: &'b [u8],
    nodes: &'b mut [Node],
    count: usize,
}

impl<const ESCAPES: bool> NodeTable<'_, ESCAPES> {
    /// The byte at a mark. A mark beyond the source would be an error of simd-json and yields 0,
    /// which is rejected because no value begins with it.
    #[inline]
    fn byte(&self, mark: usize) -> u8 {
        self.src.get(mark).copied().unwrap_or(0)
    }

    #[inline]
    fn push(&mut self, start: usize, end: usize, tag: Tag) -> Result<(), Stop> {
        let node = self.nodes.get_mut(self.count).ok_or(Stop::Full)?;
        self.count += 1;
        *node = Node { start: start as u32, end: end as u32, next: self.count as u32, tag };
        Ok(())
    }

    /// Ends the container `open` and returns the container around it.
    #[inline]
    fn close(&mut self, open: usize, mark: usize) -> Option<usize> {
        let node = self.nodes.get_mut(open)?;
        let outer = std::mem::replace(&mut node.end, mark as u32 + 1);
        node.next = self.count as u32;
        Some(outer as usize)
    }

    /// A string or key that ends before `end`.
    #[inline]
    fn string(&mut self, start: usize, end: usize) -> Result<(), Stop> {
        let mut quote = end.wrapping_sub(1);
        if self.src.get(quote) != Some(&b'"') {
            quote = trimmed(self.src, end).wrapping_sub(1);
        }
        let tag = match ESCAPES {
            true => spelling(self.src, start, quote).ok_or(Stop::Invalid)?,
            false => Tag::Plain,
        };
        self.push(start + 1, quote, tag)
    }

    #[inline]
    fn scalar(&mut self, byte: u8, start: usize, mut end: usize) -> Result<(), Stop> {
        if self.src.get(end.wrapping_sub(1)).is_some_and(|last| *last <= b' ') {
            end = trimmed(self.src, end);
        }
        let text = self.src.get(start..end).ok_or(Stop::Invalid)?;
        let tag = scalar_tag(byte, text).ok_or(Stop::Invalid)?;
        self.push(start, end, tag)
    }
}

/// `end` without the white space before it.
#[cold]
#[inline(never)]
fn trimmed(src: &[u8], mut end: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = src.get(end.wrapping_sub(1)) {
        end -= 1;
    }
    end
}

/// Whether the string between two quotes has escapes; `None` if an escape is invalid.
#[inline(never)]
fn spelling(src: &[u8], start: usize, quote: usize) -> Option<Tag> {
    let text = src.get(start..=quote)?;
    if !text.contains(&b'\\') {
        return Some(Tag::Plain);
    }
    slow::is_string(text).then_some(Tag::Escaped)
}

/// The kind of a scalar that begins with `byte`.
#[inline(never)]
fn scalar_tag(byte: u8, text: &[u8]) -> Option<Tag> {
    match byte {
        b'-' | b'0'..=b'9' if slow::is_number(text) => Some(Tag::Number),
        b't' if text == b"true" => Some(Tag::True),
        b'f' if text == b"false" => Some(Tag::False),
        b'n' if text == b"null" => Some(Tag::Null),
        _ => None,
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
    fn node_table_grows_only_with_used_nodes() {
        let mut nodes = Vec::new();
        let marks: Vec<u32> = (0..5_000).collect();
        let deep = Marked { src: &[b'['; 5_000], marks: &marks, escapes: false };
        assert_eq!(build(&mut nodes, &deep, 300), None);
        assert_eq!(nodes.len(), 4 * NODES_MIN);
        let wide: Vec<u8> = b"[".iter().chain(b"1,".iter().cycle().take(4_997)).copied().collect();
        let wide = [&wide[..], b"]"].concat();
        let wide = Marked { src: &wide, marks: &marks[..wide.len()], escapes: false };
        assert_eq!(build(&mut nodes, &wide, 300), Some(2_500));
        assert_eq!(nodes.len(), 16 * NODES_MIN);
    }

    #[test]
    fn invalid_marks_are_rejected() {
        let mut nodes = Vec::new();
        for marks in [&[][..], &[0], &[0, 1, 1], &[1], &[0, 9], &[0, 1, 9]] {
            let doc = Marked { src: b"[]", marks, escapes: false };
            assert_eq!(build(&mut nodes, &doc, 4), None, "{marks:?}");
        }
        let doc = Marked { src: b"[]", marks: &[0, 1], escapes: false };
        assert_eq!(build(&mut nodes, &doc, 4), Some(1));
    }
}
