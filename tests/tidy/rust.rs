//! A simple reader of Rust: it separates code from comments and finds functions and paths.

/// A source file, and copies of it with parts replaced by spaces; all have the same lines.
pub struct Rust {
    pub text: String,
    /// Without comments, the contents of strings, and items under `#[cfg(test)]`.
    pub code: String,
    /// As `code`, with strings.
    pub with_strings: String,
    /// As `code`, with tests.
    pub all_code: String,
}

impl Rust {
    pub fn of(text: &str) -> Rust {
        let (all_code, mut with_strings) = blank(text);
        let mut code = all_code.clone();
        for (start, end) in test_items(&all_code) {
            code.replace_range(start..end, &spaces(&code[start..end]));
            with_strings.replace_range(start..end, &spaces(&with_strings[start..end]));
        }
        Rust { text: text.to_owned(), code, with_strings, all_code }
    }

    pub fn lines_without_tests(&self) -> usize {
        let tests: usize = test_items(&self.all_code)
            .iter()
            .map(|(start, end)| self.all_code[*start..*end].matches('\n').count())
            .sum();
        self.text.lines().count() - tests
    }
}

pub fn spaces(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect()
}

/// The text without comments and literal contents, and the text without comments only. Both are
/// ASCII outside of strings, so that byte offsets are the same in both.
pub fn blank(text: &str) -> (String, String) {
    let bytes: Vec<u8> = text.bytes().map(|b| if b.is_ascii() { b } else { b'~' }).collect();
    let (mut code, mut strings) = (bytes.clone(), bytes.clone());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(&bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => comment_end(&bytes, at),
            b'"' => string_end(&bytes, at),
            b'r' if !is_word_before(&bytes, at) => raw_end(&bytes, at),
            b'\'' => char_end(&bytes, at),
            _ => at + 1,
        };
        let is_comment = bytes[at] == b'/' && end > at + 1;
        if end > at + 1 {
            let (from, upto) = if is_comment { (at, end) } else { (at + 1, end - 1) };
            wipe(&mut code[from..upto]);
            if is_comment {
                wipe(&mut strings[from..upto]);
            }
        }
        at = end;
    }
    (String::from_utf8(code).expect("ASCII"), String::from_utf8(strings).expect("ASCII"))
}

pub fn wipe(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = if *byte == b'\n' { b'\n' } else { b' ' };
    }
}

/// `b` and `c` before a raw string belong to it, other words do not.
pub fn is_word_before(bytes: &[u8], at: usize) -> bool {
    let is_word = |at: usize| is_ident(char::from(bytes[at]));
    match at {
        0 => false,
        1 => is_word(0) && !b"bc".contains(&bytes[0]),
        _ => is_word(at - 1) && (!b"bc".contains(&bytes[at - 1]) || is_word(at - 2)),
    }
}

pub fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |length| at + length)
}

pub fn comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

pub fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of `r#"…"#`, or of the letter if no raw string begins here.
pub fn raw_end(bytes: &[u8], start: usize) -> usize {
    let hashes = bytes[start + 1..].iter().take_while(|b| **b == b'#').count();
    if bytes.get(start + 1 + hashes) != Some(&b'"') {
        return start + 1;
    }
    let close: Vec<u8> = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let body = start + 2 + hashes;
    let found = bytes[body..].windows(close.len()).position(|window| window == close);
    found.map_or(bytes.len(), |length| body + length + close.len())
}

/// The end of a character literal, or of the quote if it begins a lifetime.
pub fn char_end(bytes: &[u8], start: usize) -> usize {
    if bytes.get(start + 1) == Some(&b'\\') {
        let rest = bytes.get(start + 3..).unwrap_or_default();
        return rest.iter().position(|b| *b == b'\'').map_or(bytes.len(), |n| start + n + 4);
    }
    // A character beyond ASCII has up to four bytes.
    let upto = (start + 6).min(bytes.len());
    let close = (start + 2..upto).find(|at| bytes[*at] == b'\'');
    let is_char =
        |close: &usize| *close == start + 2 || bytes[start + 1..*close].iter().all(|b| *b == b'~');
    close.filter(is_char).map_or(start + 1, |close| close + 1)
}

/// The start and end of each item under `#[cfg(test)]`.
pub fn test_items(code: &str) -> Vec<(usize, usize)> {
    let mut items = Vec::new();
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        let end = item_end(code, start + "#[cfg(test)]".len());
        items.push((start, end));
        from = end;
    }
    items
}

/// The files that `file` declares as tests: `#[cfg(test)] mod name;`.
pub fn test_files(file: &str, text: &str) -> Vec<String> {
    let code = blank(text).0;
    let stem = file.trim_end_matches(".rs");
    let folder = stem.strip_suffix("/mod").or(stem.strip_suffix("/lib")).unwrap_or(stem);
    let items = test_items(&code).into_iter().map(|(start, end)| &code[start..end]);
    let names = items.filter_map(|item| item.rsplit_once("mod ")?.1.strip_suffix(';'));
    names.map(|name| format!("{folder}/{}.rs", name.trim())).collect()
}

/// The end of the item that begins at or after `from`: a `;`, or the brace that closes its body.
pub fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0usize;
    for (at, c) in code[from..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && c == '}' {
                    return from + at + 1;
                }
            }
            ';' if depth == 0 => return from + at + 1,
            _ => {}
        }
    }
    code.len()
}

pub fn is_ident(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The offset of `name` in `line` as a whole word.
pub fn word(line: &str, name: &str) -> Option<usize> {
    let is_free = |c: Option<char>| !c.is_some_and(is_ident);
    let mut found = line.match_indices(name).map(|(at, _)| at);
    found.find(|at| {
        is_free(line[..*at].chars().next_back()) && is_free(line[at + name.len()..].chars().next())
    })
}

pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// Each function with a body, from its `fn` to its closing brace.
pub fn functions(code: &str) -> Vec<Function> {
    let mut functions = Vec::new();
    let mut from = 0;
    while let Some(found) = word(&code[from..], "fn") {
        let start = from + found;
        from = start + 2;
        let name = code[from..].trim_start();
        let name: String = name.chars().take_while(|c| is_ident(*c)).collect();
        // A pointer type has no name; a declaration in a trait ends before any brace.
        let end = item_end(code, from);
        if name.is_empty() || !code[..end].ends_with('}') {
            continue;
        }
        let line = code[..start].matches('\n').count() + 1;
        let lines = code[start..end].matches('\n').count() + 1;
        functions.push(Function { name, line, lines });
    }
    functions
}

/// Each path in the code with its line; the groups of a `use` are expanded.
pub fn paths(code: &str) -> Vec<(usize, Vec<String>)> {
    let mut cursor = Cursor { code: code.as_bytes(), at: 0, line: 1 };
    let mut found = Vec::new();
    while let Some(byte) = cursor.peek() {
        if is_ident(char::from(byte)) {
            cursor.path(&mut Vec::new(), &mut found);
        } else {
            cursor.step();
        }
    }
    found
}

pub struct Cursor<'c> {
    pub code: &'c [u8],
    pub at: usize,
    pub line: usize,
}

impl Cursor<'_> {
    pub fn peek(&self) -> Option<u8> {
        self.code.get(self.at).copied()
    }

    pub fn step(&mut self) {
        self.line += usize::from(self.peek() == Some(b'\n'));
        self.at += 1;
    }

    pub fn white(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace()) {
            self.step();
        }
    }

    /// Steps over `::` and the space around it; otherwise stays where it is.
    pub fn colons(&mut self) -> bool {
        let (at, line) = (self.at, self.line);
        self.white();
        if self.code[self.at.min(self.code.len())..].starts_with(b"::") {
            self.at += 2;
            self.white();
            return true;
        }
        (self.at, self.line) = (at, line);
        false
    }

    /// Reads a path that continues `prefix`; groups become one path for each member.
    pub fn path(&mut self, prefix: &mut Vec<String>, found: &mut Vec<(usize, Vec<String>)>) {
        let (depth, line) = (prefix.len(), self.line);
        loop {
            let start = self.at;
            while self.peek().is_some_and(|b| is_ident(char::from(b))) {
                self.step();
            }
            prefix.push(String::from_utf8_lossy(&self.code[start..self.at]).into_owned());
            if !self.colons() {
                found.push((line, prefix.clone()));
                break;
            }
            match self.peek() {
                Some(b'{') => {
                    self.group(prefix, found);
                    break;
                }
                Some(b) if is_ident(char::from(b)) => {}
                Some(_) | None => {
                    found.push((line, prefix.clone()));
                    break;
                }
            }
        }
        prefix.truncate(depth);
    }

    pub fn group(&mut self, prefix: &mut Vec<String>, found: &mut Vec<(usize, Vec<String>)>) {
        self.step();
        while let Some(byte) = self.peek().filter(|b| *b != b'}') {
            if is_ident(char::from(byte)) {
                self.path(prefix, found);
            } else {
                self.step();
            }
        }
        self.step();
    }
}
