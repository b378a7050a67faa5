//! Files of settings: one `A2ACLI_NAME=value` per line.
//!
//! Invariant: lines of a `.env` that belong to other programs are ignored. An invalid line of the
//! command line's own settings is an error with the number of the line. The environment of the
//! process is not changed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Maximum bytes of a `.env`; a longer file is not a `.env`.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of parent folders to search.
const FOLDERS_MAX: usize = 256;

/// The settings of a file, in the order of the file.
#[derive(Debug, Default)]
pub struct EnvFile {
    /// The path of the file.
    pub path: PathBuf,
    /// Variables and their values.
    pub values: Vec<(String, String)>,
    /// True: users other than the owner of the file can read it.
    pub is_open: bool,
}

/// Reads a file of settings.
///
/// # Errors
/// One line: the file is unreadable or too long, or has an invalid line, with its number.
pub fn read(path: &Path) -> Result<EnvFile, String> {
    let cannot_read = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let metadata = fs::metadata(path).map_err(cannot_read)?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(format!("{} is longer than {FILE_BYTES_MAX} bytes", path.display()));
    }
    let text = fs::read_to_string(path).map_err(cannot_read)?;
    // PowerShell writes a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    let values =
        parse(text).map_err(|(line, what)| format!("{}:{line}: {what}", path.display()))?;
    Ok(EnvFile { path: path.to_owned(), values, is_open: is_open(&metadata) })
}

/// The nearest `.env` at or above `folder`.
pub fn nearest_file(folder: &Path) -> Option<PathBuf> {
    let folders = folder.ancestors().take(FOLDERS_MAX);
    folders.map(|folder| folder.join(".env")).find(|path| path.is_file())
}

#[cfg(unix)]
pub fn is_open(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    metadata.mode() & 0o077 != 0
}

#[cfg(not(unix))]
pub fn is_open(_metadata: &fs::Metadata) -> bool {
    false
}

/// Parses the lines of the command line's settings; an error has the number of its line.
fn parse(text: &str) -> Result<Vec<(String, String)>, (usize, String)> {
    let mut values: Vec<(String, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let line = line.strip_prefix("export ").map_or(line, str::trim_start);
        if !line.starts_with("A2ACLI_") {
            continue;
        }
        let wrong = |what: String| (index + 1, what);
        let Some((name, value)) = line.split_once('=') else {
            return Err(wrong("a line must be A2ACLI_NAME=value".to_owned()));
        };
        let name = name.trim_end();
        if !name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_') {
            return Err(wrong(format!("{name:?} is not a variable name")));
        }
        if values.iter().any(|(other, _)| other == name) {
            return Err(wrong(format!("{name} is set twice")));
        }
        let value = unquote(value.trim()).map_err(|what| wrong(format!("{name}: {what}")))?;
        values.push((name.to_owned(), value));
    }
    Ok(values)
}

/// The quoted text, with escapes in double quotes; without quotes, the text up to a comment.
fn unquote(text: &str) -> Result<String, &'static str> {
    let mut letters = text.chars();
    let (quote, rest) = match letters.next() {
        Some(quote @ ('"' | '\'')) => (quote, letters.as_str()),
        _ => {
            let end = text.find(" #").unwrap_or(text.len());
            let is_comment = text.starts_with('#');
            return Ok(if is_comment { "" } else { text[..end].trim_end() }.to_owned());
        }
    };
    let (mut value, mut letters) = (String::new(), rest.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if quote == '"' => match letters.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some(same @ ('"' | '\\' | '$')) => value.push(same),
                Some(_) | None => {
                    return Err("an escape must be one of \\n, \\t, \\\", \\\\ and \
                                \\$");
                }
            },
            _ if letter == quote => {
                let rest = letters.as_str().trim_start();
                let is_end = rest.is_empty() || rest.starts_with('#');
                return if is_end { Ok(value) } else { Err("text follows the closing quote") };
            }
            _ => value.push(letter),
        }
    }
    Err("the quotes are not closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a2acli_variables_are_read_from_env_file() {
        let lines = [
            "",
            "# A2ACLI_X=1",
            "DATABASE=\"open",
            "A2ACLI_A=1 # one",
            " export A2ACLI_B = 'a # b' ",
            "A2ACLI_C=\"x\\n\\\"y\\\"\"",
            "A2ACLI_D=",
            "A2ACLI_E=#no",
            "A2ACLI_F=a#b",
        ];
        let values = parse(&lines.join("\n")).unwrap();
        let values: Vec<(&str, &str)> =
            values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            values,
            [
                ("A2ACLI_A", "1"),
                ("A2ACLI_B", "a # b"),
                ("A2ACLI_C", "x\n\"y\""),
                ("A2ACLI_D", ""),
                ("A2ACLI_E", ""),
                ("A2ACLI_F", "a#b"),
            ]
        );
    }

    #[test]
    fn invalid_a2acli_line_error_has_line_number() {
        for (text, line, expected) in [
            ("A=1\nA2ACLI_A", 2, "A2ACLI_NAME=value"),
            ("A2ACLI_a=1", 1, "not a variable name"),
            ("A2ACLI_A=1\n\nA2ACLI_A=2", 3, "set twice"),
            ("A2ACLI_A=\"1", 1, "not closed"),
            ("A2ACLI_A='1' 2", 1, "follows the closing quote"),
            ("A2ACLI_A=\"\\x\"", 1, "an escape"),
        ] {
            let (at, what) = parse(text).unwrap_err();
            assert!(at == line && what.contains(expected), "{text}: {at}: {what}");
        }
    }
}
