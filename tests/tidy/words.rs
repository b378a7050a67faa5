//! Rules on words: a citation names an existing section, and a type's name has one meaning.

use std::collections::BTreeMap;

use crate::{rules::*, rust::*};

/// The page that comments cite as "wire §x".
pub const WIRE: &str = "docs/wire.md";

/// How many type names may be defined more than once in `src`.
const SHARED_NAMES_MAX: usize = 8;

/// Pages outside of the repository that comments used to cite.
const UNREADABLE: &[&str] = &[concat!("users", ".md"), concat!("design", ".md")];

/// Each `wire §x` and `wire Appendix X` is a heading of `docs/wire.md`; an appendix without a page,
/// or a page outside of the repository, is a finding.
pub fn citations(file: &str, text: &str, wire: &str, findings: &mut Vec<Finding>) {
    let headings: Vec<String> = wire.lines().filter_map(heading).collect();
    for (index, line) in text.lines().enumerate() {
        let mut report = |what: String| find(findings, file, index + 1, what);
        let (cited, rest) = wire_citations(line);
        for section in cited.iter().filter(|section| !headings.contains(section)) {
            report(format!("{WIRE} has no {section}"));
        }
        if appendix(&rest).is_some() {
            report("an appendix of what?".to_owned());
        }
        for page in UNREADABLE.iter().filter(|page| line.contains(**page)) {
            report(format!("{page} is not in the repository"));
        }
    }
}

/// People-words for things, which hide the subject of a sentence (docs/style.md).
const PEOPLE: [&str; 2] = ["whoever", "nobody"];

/// No line has one of [`PEOPLE`].
pub fn people(file: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        let words = lower.split(|c: char| !c.is_alphanumeric() && c != '_');
        for word in words.filter(|word| PEOPLE.contains(word)) {
            find(findings, file, index + 1, format!("\"{word}\": name the client, caller or peer"));
        }
    }
}

/// Words for people that strings of `src` may use for a person or as grammar only.
const PEOPLE_IN_STRINGS: [&str; 11] = [
    "who",
    "whom",
    "whose",
    concat!("who", "ever"),
    "somebody",
    concat!("no", "body"),
    "anybody",
    "everybody",
    "everyone",
    "someone",
    "anyone",
];

/// The number of [`PEOPLE_IN_STRINGS`] in strings of `src`. This number only goes down.
const PEOPLE_IN_STRINGS_MAX: usize = 9;

/// Whether `word`, in lower case, is one of [`PEOPLE_IN_STRINGS`].
pub fn names_people(word: &str) -> bool {
    PEOPLE_IN_STRINGS.contains(&word)
}

/// Adds a finding for each of [`PEOPLE_IN_STRINGS`] in a string.
pub fn people_in_strings(file: &str, rust: &Rust, findings: &mut Vec<Finding>) {
    let lines = rust.with_strings.lines().zip(rust.code.lines());
    for (index, (line, code)) in lines.enumerate() {
        // In the code without strings, their contents are spaces.
        let pairs = line.chars().zip(code.chars());
        let strings: String = pairs.map(|(c, code)| if code == ' ' { c } else { '"' }).collect();
        let lower = strings.to_lowercase();
        let words = lower.split(|c: char| !is_ident(c));
        for word in words.filter(|word| names_people(word)) {
            find(findings, file, index + 1, format!("\"{word}\" in a string"));
        }
    }
}

/// The findings, if they are more than [`PEOPLE_IN_STRINGS_MAX`].
pub fn few_people_in_strings(findings: Vec<Finding>) -> Vec<Finding> {
    if findings.len() > PEOPLE_IN_STRINGS_MAX { findings } else { Vec::new() }
}

/// `§1.2` of `## 1.2 Fingerprints`, `Appendix A` of `# Appendix A. Minimal frames`.
fn heading(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim_start();
    let number = title.split(' ').next()?.trim_end_matches('.');
    let is_number = number.starts_with(|first: char| first.is_ascii_digit());
    if is_number { Some(format!("§{number}")) } else { appendix(title) }
}

/// The sections that a line cites, and the line without them.
fn wire_citations(line: &str) -> (Vec<String>, String) {
    let (mut cited, mut rest) = (Vec::new(), String::new());
    let mut tail = line;
    while let Some(at) = tail.find("ire §").or_else(|| tail.find("ire Appendix")) {
        rest.push_str(&tail[..at]);
        tail = &tail[at + "ire ".len()..];
        while let Some((section, after)) = section(tail) {
            cited.push(section);
            tail = after;
            let more = [", ", " to ", " and "].into_iter().find_map(|word| tail.strip_prefix(word));
            let Some(more) = more.filter(|more| section_begins(more)) else { break };
            tail = more;
        }
    }
    (cited, rest + tail)
}

fn section_begins(text: &str) -> bool {
    section(text).is_some()
}

/// The section at the start of `text`, and the rest after it.
fn section(text: &str) -> Option<(String, &str)> {
    if let Some(number) = text.strip_prefix('§') {
        let is_part = |c: char| c.is_ascii_digit() || c == '.';
        let len = number.find(|c| !is_part(c)).unwrap_or(number.len());
        let number = Some(number[..len].trim_end_matches('.')).filter(|some| !some.is_empty())?;
        return Some((format!("§{number}"), &text['§'.len_utf8() + number.len()..]));
    }
    let name = appendix(text).filter(|_| text.starts_with("Appendix"))?;
    let len = name.len();
    Some((name, &text[len..]))
}

/// `Appendix A`, if `text` names one.
fn appendix(text: &str) -> Option<String> {
    let letter = text.split("Appendix ").nth(1)?.chars().next()?;
    letter.is_ascii_uppercase().then(|| format!("Appendix {letter}"))
}

/// The first column of the glossary has names of types, each in backticks.
pub fn glossary(page: &str, code: &str, findings: &mut Vec<Finding>) {
    let names = page.lines().enumerate().filter_map(|(index, line)| {
        let (name, _) = line.strip_prefix("| `")?.split_once("` |")?;
        Some((index + 1, name))
    });
    for (line, name) in names {
        let is_defined = ["struct", "enum", "trait"]
            .into_iter()
            .any(|kind| word(code, &format!("{kind} {name}")).is_some());
        if !is_defined {
            find(findings, "docs/glossary.md", line, format!("{name} is no type"));
        }
    }
}

/// The type names that `src` defines more than once, with their files.
pub fn shared_names<'f>(
    sources: impl Iterator<Item = (&'f str, &'f Rust)>,
) -> BTreeMap<String, Vec<&'f str>> {
    let mut files_of: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (file, rust) in sources {
        for line in rust.code.lines() {
            for kind in ["struct", "enum", "trait"] {
                let Some(at) = word(line, kind) else { continue };
                let name = line[at + kind.len()..].trim_start();
                let name: String = name.chars().take_while(|c| is_ident(*c)).collect();
                if name.starts_with(|first: char| first.is_ascii_uppercase()) {
                    files_of.entry(name).or_default().push(file);
                }
            }
        }
    }
    files_of.retain(|_, files| files.len() > 1);
    files_of
}

pub fn few_shared_names(names: &BTreeMap<String, Vec<&str>>, findings: &mut Vec<Finding>) {
    if names.len() > SHARED_NAMES_MAX {
        let what = format!("{} names of types mean two things: {names:#?}", names.len());
        find(findings, "src", 0, what);
    }
}

#[test]
fn word_for_people_in_source_is_reported() {
    let check = |text: &str| {
        let mut findings = Vec::new();
        people("src/a.rs", text, &mut findings);
        findings.len()
    };
    assert_eq!(check("// Nobody waits.\nlet x = 1; // Whoever reads it."), 2);
    assert_eq!(check("// No call waits.\nlet nobody_waits = 1;"), 0);
}

#[test]
fn citation_of_missing_section_is_reported() {
    let wire = "# A title\n# 1. One\n## 1.2 Two\n# Appendix A. Frames\n";
    let check = |text: &str| {
        let mut findings = Vec::new();
        citations("src/a.rs", text, wire, &mut findings);
        findings.len()
    };
    for bad in [
        "// Wire §1.3: x",
        "(wire §1.2, §1.3)",
        "wire §2",
        "// Appendix A: x",
        "wire Appendix B, step 2",
        concat!("as users", ".md says"),
    ] {
        assert_eq!(check(bad), 1, "{bad}");
    }
    for good in [
        "// Wire §1.2: x",
        "(wire §1, §1.2 and Appendix A)",
        "RFC 9112 §6.3",
        "a \"wire §x\" of it",
    ] {
        assert_eq!(check(good), 0, "{good}");
    }
}

#[test]
fn glossary_word_without_type_is_reported() {
    let page = "| word | is |\n|---|---|\n| `Task` | a log |\n| `Ticket` | old |\n";
    let mut findings = Vec::new();
    glossary(page, "pub struct Task<'a>;\nstruct Tickets;\n", &mut findings);
    assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4]);
}

#[test]
fn type_name_defined_in_two_files_is_reported() {
    let one = Rust::of("pub struct Place;\n// struct Home;\nenum Kind { Place }\n");
    let two = Rust::of("pub(crate) struct Place<'a> {}\nstruct Home;\n");
    let names = shared_names([("a", &one), ("b", &two)].into_iter());
    assert_eq!(names.into_iter().collect::<Vec<_>>(), [("Place".to_owned(), vec!["a", "b"])]);
}

#[test]
fn words_for_people_in_strings_are_reported() {
    let check = |text: &str| {
        let mut findings = Vec::new();
        people_in_strings("src/a.rs", &Rust::of(text), &mut findings);
        findings.len()
    };
    assert_eq!(check("let who = \"Somebody, whose\"; // who"), 2);
    assert_eq!(check("#[cfg(test)]\nmod tests { const A: &str = \"who\"; }"), 0);
}
