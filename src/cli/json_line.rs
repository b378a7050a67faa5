//! JSON for a terminal: the content is the same as in JSON for a program.

use std::fmt::Write;

use peregrine::model::must_escape;

/// Equivalent JSON on one line, without characters that control a terminal.
pub fn json_line(json: &str) -> String {
    escaped(json, false)
}

/// As [`json_line`], with the line ends of `json`.
pub fn json_lines(json: &str) -> String {
    escaped(json, true)
}

fn escaped(json: &str, keeps_lines: bool) -> String {
    let mut line = String::with_capacity(json.len() + 1);
    for letter in json.chars() {
        match letter {
            '\n' if keeps_lines => line.push('\n'),
            // White space between strings; inside of strings these characters are always escaped
            // (RFC 8259 §7).
            '\n' | '\r' | '\t' => line.push(' '),
            _ if must_escape(letter) => {
                // All of these characters are below U+10000. Writing to a String never fails.
                let _ = write!(line, "\\u{:04x}", u32::from(letter));
            }
            _ => line.push(letter),
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_line_escapes_control_characters_losslessly() {
        let input = "{\"a\":\t\"\u{9b}31m\u{7f}\u{85}\u{202e}\u{2028}\u{2029}\u{e9}\u{1f600}\",\r\n\
             \"b\":\"\\u001b\\\\\"}";
        let line = json_line(input);
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&line), read(input));
        assert!(line.contains("\\u009b31m\\u007f\\u0085\\u202e\\u2028\\u2029\u{e9}"), "{line:?}");
        let ended = line.strip_suffix('\n').unwrap();
        assert!(!ended.chars().any(must_escape), "{line:?}");
    }
}
