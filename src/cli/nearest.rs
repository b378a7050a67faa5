//! The name a user probably meant.

/// The candidate with the fewest edits from `word`, ignoring case, if they are fewer than half of
/// its letters.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let edits = |candidate: &str| distance(&word, &candidate.to_ascii_lowercase());
    let scored = candidates.map(|candidate| (edits(candidate), candidate));
    let (edits, candidate) = scored.min_by_key(|(edits, _)| *edits)?;
    (edits * 2 < candidate.len().max(word.len())).then_some(candidate)
}

/// The Damerau–Levenshtein distance in bytes: two swapped letters are one edit.
fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=other.len()).collect();
    for i in 1..=one.len() {
        for j in 1..=other.len() {
            let is_same = one[i - 1] == other[j - 1];
            let mut edits = rows[i - 1][j - 1] + usize::from(!is_same);
            edits = edits.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            let is_swapped =
                i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
            if is_swapped {
                edits = edits.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = edits;
        }
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_edits() {
        for (one, other, edits) in
            [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("sedn", "send", 1)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (edits, edits));
        }
    }

    #[test]
    fn a_far_word_is_not_suggested() {
        let names = ["head_bytes_max", "body_bytes_max"];
        assert_eq!(nearest("body_byte_max", names.into_iter()), Some("body_bytes_max"));
        assert_eq!(nearest("BODY_BYTES_MAX", names.into_iter()), Some("body_bytes_max"));
        assert_eq!(nearest("zebra", names.into_iter()), None);
    }
}
