//! The name a user probably meant.

/// The candidate with the fewest edits from `word`, if they are fewer than half of its letters.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = candidates.map(|candidate| (distance(word, candidate), candidate));
    let (edits, candidate) = scored.min_by_key(|(edits, _)| *edits)?;
    (edits * 2 < candidate.len().max(word.len())).then_some(candidate)
}

/// Levenshtein's distance in bytes.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.bytes().enumerate() {
            let substitution = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substitution.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (one, other, edits) in
            [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (edits, edits));
        }
    }

    #[test]
    fn a_far_word_is_not_suggested() {
        let names = ["head_bytes_max", "body_bytes_max"];
        assert_eq!(nearest("body_byte_max", names.into_iter()), Some("body_bytes_max"));
        assert_eq!(nearest("zebra", names.into_iter()), None);
    }
}
