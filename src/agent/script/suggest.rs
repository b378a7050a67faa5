//! Suggestions of the nearest known word, for errors.

/// A text that names the known word nearest to `word`, or else all known words.
pub(super) fn suggest(word: &str, known: &[&str]) -> String {
    let nearest = known.iter().map(|known| (distance(word, known), known)).min();
    match nearest {
        Some((distance, known)) if distance <= 1 + known.len() / 4 => {
            format!("did you mean `{known}`?")
        }
        Some(_) | None => format!("expected one of `{}`", known.join("`, `")),
    }
}

/// The Levenshtein distance in bytes.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, &a) in left.as_bytes().iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], above + 1);
        for (at, &b) in right.as_bytes().iter().enumerate() {
            let swap = diagonal + usize::from(a != b);
            diagonal = row[at + 1];
            row[at + 1] = swap.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_is_correct_and_symmetric() {
        for (left, right, expected) in
            [("", "", 0), ("a", "", 1), ("", "ab", 2), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(left, right), expected, "{left} {right}");
            assert_eq!(distance(right, left), expected, "{left} {right}");
        }
    }

    #[test]
    fn the_nearest_word_is_suggested() {
        assert_eq!(suggest("stauts", &["status", "step"]), "did you mean `status`?");
        assert_eq!(suggest("messageId", &["text", "message_id"]), "did you mean `message_id`?");
        assert_eq!(suggest("x", &["text", "step"]), "expected one of `text`, `step`");
    }
}
