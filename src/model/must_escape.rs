//! Characters of a peer's text that are escaped in all displays.

/// True for a character that controls a terminal, a pager or a log viewer instead of being
/// displayed: C0 and C1 controls and DEL, the two separators that end a line (U+2028, U+2029), and
/// the controls that reorder the text after them (UAX #9 §2).
#[inline]
pub fn must_escape(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || ('\u{2066}'..='\u{2069}').contains(&letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidi_characters_must_be_escaped() {
        for letter in ['a', ' ', 'é', '\u{5d0}', '\u{200d}', '\u{2027}', '\u{202f}', '\u{1f600}'] {
            assert!(!must_escape(letter), "{letter:?}");
        }
        let ranges = [
            '\0'..='\u{1f}',
            '\u{7f}'..='\u{9f}',
            '\u{61c}'..='\u{61c}',
            '\u{200e}'..='\u{200f}',
            '\u{2028}'..='\u{202e}',
            '\u{2066}'..='\u{2069}',
        ];
        assert!(ranges.into_iter().flatten().all(must_escape));
    }
}
