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

/// What closes the outermost level: nothing.
const ROOT: u8 = 0;

/// The least nodes of a table: a usual envelope has 20.
const NODES_MIN: usize = 256;

/// Fills `nodes`, which only ever grows, and says how many there are; `None` when the document is
/// invalid or deeper than `depth_max`, which [`slow`] tells apart.
///
/// There is at most one node for a mark, but the table grows by what was used: a document that is
/// refused at its start must not cost what its length would allow.
pub(super) fn build(nodes: &mut Vec<Node>, doc: &Marked<'_>, depth_max: usize) -> Option<usize> {
    loop {
        if let Some(last) = nodes.last_mut() {
            *last = BLANK;
        }
        let count = match doc.escapes {
            true => fill::<true>(nodes, doc, depth_max),
            false => fill::<false>(nodes, doc, depth_max),
        };
        let full = nodes.last().is_none_or(|last| last.next != BLANK.next);
        if count.is_some() || !full || nodes.len() >= doc.marks.len() {
            return count;
        }
        let most = doc.marks.len().max(NODES_MIN);
        nodes.resize((nodes.len() * 4).clamp(NODES_MIN, most), BLANK);
    }
}

/// While a container is open its `end` holds the index of the container around it.
fn fill<const ESCAPES: bool>(
    nodes: &mut [Node],
    doc: &Marked<'_>,
    depth_max: usize,
) -> Option<usize> {
    let mut table = Table::<ESCAPES> { src: doc.src, nodes, count: 0 };
    let mut marks = doc.marks;
    let (mut open, mut closer, mut depth) = (NONE, ROOT, 0);
    loop {
        // A member or an element begins here.
        let value;
        let mut end = doc.src.len();
        if closer == b'}' {
            let &[key, colon, member, after, ..] = marks else { return None };
            if table.byte(key) != b'"' || table.byte(colon) != b':' {
                return None;
            }
            table.string(key, colon as usize)?;
            marks = marks.get(3..)?;
            (value, end) = (member, after as usize);
        } else {
            (value, marks) = marks.split_first().map(|(first, rest)| (*first, rest))?;
            if let [after, ..] = marks {
                end = *after as usize;
            }
        }
        match table.byte(value) {
            b'"' => table.string(value, end)?,
            bracket @ (b'{' | b'[') => {
                depth += 1;
                if depth > depth_max {
                    return None;
                }
                let tag = if bracket == b'{' { Tag::Object } else { Tag::Array };
                closer = closer_of(tag);
                let outer = std::mem::replace(&mut open, table.count);
                table.push(value, outer, tag)?;
                if table.byte(*marks.first()?) != closer {
                    continue;
                }
            }
            byte => table.scalar(byte, value, end)?,
        }
        // Behind it are closing brackets, and then a comma or the end.
        loop {
            let [mark, rest @ ..] = marks else {
                return (open == NONE).then_some(table.count as usize);
            };
            marks = rest;
            match table.byte(*mark) {
                b',' if closer != ROOT => break,
                byte @ (b'}' | b']') if byte == closer => {
                    open = table.close(open, *mark)?;
                    closer =
                        table.nodes.get(open as usize).map_or(ROOT, |node| closer_of(node.tag));
                    depth -= 1;
                }
                _ => return None,
            }
        }
    }
}

#[inline]
fn closer_of(container: Tag) -> u8 {
    if container == Tag::Object { b'}' } else { b']' }
}

/// The nodes that are made, `count <= nodes.len()`.
struct Table<'b, const ESCAPES: bool> {
    src: &'b [u8],
    nodes: &'b mut [Node],
    count: u32,
}

impl<const ESCAPES: bool> Table<'_, ESCAPES> {
    /// The byte at a mark. One beyond the source would be simd-json's error, and is refused:
    /// nothing begins with a zero byte.
    #[inline]
    fn byte(&self, mark: u32) -> u8 {
        self.src.get(mark as usize).copied().unwrap_or(0)
    }

    #[inline]
    fn push(&mut self, start: u32, end: u32, tag: Tag) -> Option<()> {
        let node = self.nodes.get_mut(self.count as usize)?;
        self.count += 1;
        *node = Node { start, end, next: self.count, tag };
        Some(())
    }

    /// Ends the container `open` and yields the one around it.
    #[inline]
    fn close(&mut self, open: u32, mark: u32) -> Option<u32> {
        let node = self.nodes.get_mut(open as usize)?;
        let outer = std::mem::replace(&mut node.end, mark + 1);
        node.next = self.count;
        Some(outer)
    }

    /// A string or key that ends before `end`.
    #[inline]
    fn string(&mut self, start: u32, mut end: usize) -> Option<()> {
        if self.src.get(end.wrapping_sub(1)) != Some(&b'"') {
            end = trimmed(self.src, end);
        }
        let escaped = ESCAPES && is_escaped(self.src.get(start as usize..end)?)?;
        self.push(start, end as u32, if escaped { Tag::Escaped } else { Tag::Plain })
    }

    #[inline]
    fn scalar(&mut self, byte: u8, start: u32, end: usize) -> Option<()> {
        let end = trimmed(self.src, end);
        let text = self.src.get(start as usize..end)?;
        let tag = match byte {
            b'-' | b'0'..=b'9' if slow::is_number(text) => Tag::Number,
            b't' if text == b"true" => Tag::True,
            b'f' if text == b"false" => Tag::False,
            b'n' if text == b"null" => Tag::Null,
            _ => return None,
        };
        self.push(start, end as u32, tag)
    }
}

/// `end` without the white space before it.
#[inline]
fn trimmed(src: &[u8], mut end: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = src.get(end.wrapping_sub(1)) {
        end -= 1;
    }
    end
}

/// Whether a string has escapes; `None` if one is invalid.
#[inline(never)]
fn is_escaped(text: &[u8]) -> Option<bool> {
    if !text.contains(&b'\\') {
        return Some(false);
    }
    slow::is_string(text).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_sixteen_bytes() {
        assert_eq!(size_of::<Node>(), 16);
    }

    #[test]
    fn a_table_grows_by_what_is_used() {
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
