//! Typed reading of TOML tables, with errors that say where and what was meant.
//!
//! The law of this file: no key is ignored and no value is converted; every error names the line,
//! and the rule, step and part as a human counts them.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::ScriptError;

/// Parses the file.
pub(super) fn document(text: &str) -> Result<DeTable<'_>, ScriptError> {
    match DeTable::parse(text) {
        Ok(root) => Ok(root.into_inner()),
        Err(error) => Err(ScriptError {
            line: error.span().map(|span| line_of(text, span.start)),
            message: error.message().to_owned(),
        }),
    }
}

/// A table, where it stands, and what a human calls that place.
pub(super) struct Node<'t> {
    table: &'t DeTable<'t>,
    source: &'t str,
    start: usize,
    place: String,
}

impl<'t> Node<'t> {
    pub fn root(table: &'t DeTable<'t>, source: &'t str) -> Node<'t> {
        Node { table, source, start: 0, place: String::new() }
    }

    /// Refuses every key that is not in `known`.
    pub fn allow(&self, known: &[&str]) -> Result<(), ScriptError> {
        for key in self.table.keys() {
            if !known.contains(&key.get_ref().as_ref()) {
                let hint = suggest(key.get_ref(), known);
                let message = format!("unknown key `{}`; {hint}", key.get_ref());
                return Err(self.error(key.span(), &message));
            }
        }
        Ok(())
    }

    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    pub fn text(&self, key: &str) -> Result<Option<&'t str>, ScriptError> {
        self.typed(key, "a string", DeValue::as_str)
    }

    pub fn need_text(&self, key: &str) -> Result<&'t str, ScriptError> {
        let text = self.text(key)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| self.wrong(key, "must be a string that is not empty"))
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, ScriptError> {
        self.typed(key, "true or false", DeValue::as_bool)
    }

    /// A whole number within `range`.
    pub fn number(&self, key: &str, range: Range<u64>) -> Result<Option<u64>, ScriptError> {
        let what = format!("a whole number from {} to {}", range.start, range.end - 1);
        self.typed(key, &what, |value| {
            let integer = value.as_integer()?;
            let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok()?;
            range.contains(&number).then_some(number)
        })
    }

    pub fn texts(&self, key: &str) -> Result<Option<Vec<String>>, ScriptError> {
        self.typed(key, "an array of strings", |value| {
            let texts = value.as_array()?.iter();
            texts.map(|text| text.get_ref().as_str().map(str::to_owned)).collect()
        })
    }

    pub fn table(&self, key: &str) -> Result<Option<Node<'t>>, ScriptError> {
        let what = format!("one table, written [{key}]");
        let Some(table) = self.typed(key, &what, DeValue::as_table)? else {
            return Ok(None);
        };
        let start = self.value(key).map_or(self.start, |value| value.span().start);
        Ok(Some(Node { table, source: self.source, start, place: self.inside(key.to_owned()) }))
    }

    /// The tables of an array, called `noun` 1, 2, …; none when the key is absent.
    pub fn tables(&self, key: &str, noun: &str) -> Result<Vec<Node<'t>>, ScriptError> {
        let what = "an array of tables";
        let array = self.typed(key, what, DeValue::as_array)?;
        let values = array.map(|array| array.iter()).into_iter().flatten();
        let node = |(index, value): (usize, &'t Spanned<DeValue<'t>>)| {
            let table = value.get_ref().as_table();
            let table = table.ok_or_else(|| self.wrong(key, &format!("must be {what}")))?;
            let place = self.inside(format!("{noun} {}", index + 1));
            Ok(Node { table, source: self.source, start: value.span().start, place })
        };
        values.enumerate().map(node).collect()
    }

    /// An error about a key that is there, or should be.
    pub fn wrong(&self, key: &str, message: &str) -> ScriptError {
        let span = self.value(key).map_or(self.start..self.start, Spanned::span);
        self.error(span, &format!("`{key}` {message}"))
    }

    /// An error about the table as a whole.
    pub fn fail(&self, message: &str) -> ScriptError {
        self.error(self.start..self.start, message)
    }

    fn value(&self, key: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    fn typed<T>(
        &self,
        key: &str,
        what: &str,
        read: impl Fn(&'t DeValue<'t>) -> Option<T>,
    ) -> Result<Option<T>, ScriptError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match read(value.get_ref()) {
            Some(read) => Ok(Some(read)),
            None => Err(self.wrong(key, &format!("must be {what}"))),
        }
    }

    fn inside(&self, name: String) -> String {
        if self.place.is_empty() { name } else { format!("{}, {name}", self.place) }
    }

    fn error(&self, span: Range<usize>, message: &str) -> ScriptError {
        let colon = if self.place.is_empty() { "" } else { ": " };
        ScriptError {
            line: Some(line_of(self.source, span.start)),
            message: format!("{}{colon}{message}", self.place),
        }
    }
}

/// A sentence that names the known word nearest to `word`, or all of them.
pub(super) fn suggest(word: &str, known: &[&str]) -> String {
    let nearest = known.iter().map(|known| (distance(word, known), known)).min();
    match nearest {
        Some((distance, known)) if distance <= 1 + known.len() / 4 => {
            format!("did you mean `{known}`?")
        }
        Some(_) | None => format!("known are `{}`", known.join("`, `")),
    }
}

/// Levenshtein's distance in bytes.
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

fn line_of(source: &str, offset: usize) -> usize {
    1 + source.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
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
        assert_eq!(suggest("x", &["text", "step"]), "known are `text`, `step`");
    }
}
