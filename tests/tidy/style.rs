//! Rules of docs/style.md on comments, parameters and names of tests. A maximum only goes down.

use crate::{rules::*, rust::*, words::names_people};

/// Words for people in comments, of some 230,000 words of comments.
const PEOPLE_IN_COMMENTS_MAX: usize = 27;

/// Characters of the name of a test.
const TEST_NAME_CHARS_MAX: usize = 60;

/// Words that identifiers do not use.
const NOT_IN_IDENTIFIERS: [&str; 7] =
    ["said", "told", "who", "whom", "whose", concat!("no", "body"), "somebody"];

/// Words that names of tests do not use, in addition to [`NOT_IN_IDENTIFIERS`] and those for people.
const NOT_IN_TEST_NAMES: [&str; 4] = ["those", "place", "beside", "behind"];

/// Adds a finding for each word for people in a comment that has a line of its own.
pub fn people_in_comments(file: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let comment = Some(line.trim_start()).filter(|line| line.starts_with("//"));
        let lower = comment.unwrap_or_default().to_lowercase();
        for word in lower.split(|c: char| !is_ident(c)).filter(|word| names_people(word)) {
            find(findings, file, index + 1, format!("\"{word}\" in a comment"));
        }
    }
}

/// The findings, if they are more than [`PEOPLE_IN_COMMENTS_MAX`].
pub fn few_people_in_comments(findings: Vec<Finding>) -> Vec<Finding> {
    if findings.len() > PEOPLE_IN_COMMENTS_MAX { findings } else { Vec::new() }
}

/// Adds a finding for each parameter whose pattern or type is a tuple.
pub fn tuple_parameters(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
    let code = &rust.all_code;
    let mut from = 0;
    while let Some(found) = word(&code[from..], "fn") {
        let start = from + found;
        from = start + 2;
        for parameter in parameters(&code[start..]).into_iter().filter(|one| is_tuple(one)) {
            let line = code[..start].matches('\n').count() + 1;
            let parameter = parameter.split_whitespace().collect::<Vec<_>>().join(" ");
            find(findings, file, line, format!("a tuple as a parameter: {parameter}"));
        }
    }
}

/// Adds a finding for each identifier with a word that docs/style.md replaces.
pub fn identifiers_are_plain(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
    for (index, line) in rust.all_code.lines().enumerate() {
        for name in line.split(|c: char| !is_ident(c)) {
            let words = words_of(name);
            for word in words.iter().filter(|word| NOT_IN_IDENTIFIERS.contains(&word.as_str())) {
                find(findings, file, index + 1, format!("\"{word}\" in the identifier {name}"));
            }
        }
    }
}

/// The words of an identifier in snake case or camel case, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && snake.ends_with(|last: char| last.is_lowercase()) {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake.split('_').map(str::to_owned).collect()
}

/// Adds a finding for each test whose name is too long or has a word that docs/style.md replaces.
pub fn test_names_are_plain(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
    for name in test_names(rust) {
        if name.len() > TEST_NAME_CHARS_MAX {
            find(findings, file, 0, format!("the name of the test {name} is {} long", name.len()));
        }
        let is_replaced = |word: &&str| names_people(word) || NOT_IN_TEST_NAMES.contains(word);
        for word in name.split('_').filter(is_replaced) {
            find(findings, file, 0, format!("\"{word}\" in the name of the test {name}"));
        }
    }
}

/// The parameters of the function at the start of `code`.
fn parameters(code: &str) -> Vec<&str> {
    let (mut depth, mut angles, mut begin, mut parameters) = (0, 0, None, Vec::new());
    let bytes = code.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            // Those of an arrow are no brackets.
            b'>' if at > 0 && matches!(bytes[at - 1], b'-' | b'=') => {}
            b'<' => angles += 1,
            b'>' => angles -= 1,
            b'(' | b'[' | b'{' => {
                if begin.is_none() && angles == 0 {
                    if *byte != b'(' {
                        break;
                    }
                    begin = Some(at + 1);
                    depth = 0;
                    continue;
                }
                depth += 1;
            }
            b')' | b']' | b'}' if depth == 0 => {
                let Some(from) = begin.filter(|_| angles == 0) else { continue };
                parameters.push(&code[from..at]);
                break;
            }
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 && angles == 0 => {
                if let Some(from) = begin {
                    parameters.push(&code[from..at]);
                    begin = Some(at + 1);
                }
            }
            b';' if begin.is_none() => break,
            _ => {}
        }
    }
    parameters
}

/// Whether the pattern of a parameter, or its type, is a tuple; `()` and `&(dyn Any + Send)` are
/// not.
fn is_tuple(parameter: &str) -> bool {
    let begins = |text: &str| {
        let text = text.trim_start().trim_start_matches('&').trim_start();
        let text = text.strip_prefix("mut ").unwrap_or(text).trim_start();
        let is_other = ["()", "(dyn ", "(impl "].iter().any(|other| text.starts_with(other));
        text.starts_with('(') && !is_other
    };
    begins(parameter) || parameter.split_once(": ").is_some_and(|(_, kind)| begins(kind))
}
