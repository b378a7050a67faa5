//! Replaces `${NAME}` in the strings of a file by the value of an environment variable; `$$` means
//! a dollar sign.

use super::environment::Variables;

/// Maximum bytes that all variables together add to a file: as many as a file may have.
const EXPANDED_BYTES_MAX: usize = 1 << 20;

/// Expands variables in strings.
pub struct Expander<'v> {
    variables: &'v Variables,
    remaining: usize,
}

impl<'v> Expander<'v> {
    /// An expander with these variables.
    pub fn new(variables: &'v Variables) -> Expander<'v> {
        Expander { variables, remaining: EXPANDED_BYTES_MAX }
    }

    /// The string with its variables replaced by their values.
    ///
    /// # Errors
    /// One sentence: an invalid `$`, an unset variable, or too many bytes.
    pub fn expand(&mut self, text: &str) -> Result<String, String> {
        let (mut whole, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            whole.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                whole.push('$');
                rest = after;
                continue;
            }
            let name = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let Some((name, after)) = name.filter(|(name, _)| is_name(name)) else {
                return Err("$ must begin ${NAME}; write a dollar sign as $$".to_owned());
            };
            let value = self.variables.value(name);
            let value = value.ok_or_else(|| format!("the variable {name} is not set"))?;
            let Some(remaining) = self.remaining.checked_sub(value.len()) else {
                let most = EXPANDED_BYTES_MAX;
                return Err(format!("the variables of this file have more than {most} bytes"));
            };
            self.remaining = remaining;
            whole.push_str(value);
            rest = after;
        }
        whole.push_str(rest);
        Ok(whole)
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let starts = !name.starts_with(|c: char| c.is_ascii_digit());
    !name.is_empty() && starts && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_in_braces_are_expanded() {
        let variables = Variables::new([("A", "one"), ("B_2", "$A"), ("EMPTY", "")]);
        let expand = |text: &str| Expander::new(&variables).expand(text);
        for (text, whole) in [
            ("", "".to_owned()),
            ("no dollar", "no dollar".to_owned()),
            ("${A}", "one".to_owned()),
            ("x${A}${A}y", "xoneoney".to_owned()),
            // The value of a variable is not expanded again.
            ("${B_2}", "$A".to_owned()),
            ("[${EMPTY}]", "[]".to_owned()),
            ("$${A} costs 5$$", "${A} costs 5$".to_owned()),
        ] {
            assert_eq!(expand(text), Ok(whole), "{text}");
        }
        for (text, expected) in [
            ("${NONE}", "the variable NONE is not set"),
            ("$A", "$ must begin ${NAME}"),
            ("${A", "$ must begin ${NAME}"),
            ("${}", "$ must begin ${NAME}"),
            ("${2}", "$ must begin ${NAME}"),
            ("${A-x}", "$ must begin ${NAME}"),
            ("5$", "as $$"),
        ] {
            let error = expand(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn expanded_size_is_bounded() {
        let large = "x".repeat(EXPANDED_BYTES_MAX / 2);
        let variables = Variables::new([("L", large.as_str())]);
        let mut expander = Expander::new(&variables);
        assert!(expander.expand("${L}").is_ok() && expander.expand("${L}").is_ok());
        assert!(expander.expand("${L}").unwrap_err().contains("more than"));
    }
}
