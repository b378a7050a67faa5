//! Configurations: any text is read, or refused in one line with the position of the error.
//!
//! The parser is pure and belongs to the binary, so its files are included here.

use std::path::Path;

#[allow(dead_code)]
#[path = "../../src/cli/serve/config/file.rs"]
mod file;
#[path = "../../src/cli/nearest.rs"]
mod nearest;
#[allow(dead_code, unused_imports)]
#[path = "../../src/cli/serve/config/sections/mod.rs"]
mod sections;
#[allow(dead_code, unused_imports)]
#[path = "../../src/cli/serve/config/tree/mod.rs"]
mod tree;

use tree::{ConfigSource, Variables, Wrong};

/// A text is read as a file, and its first line as an environment variable, without a panic. An
/// error is one line with a line number of the text or the name of the variable. The values are
/// within the limits.
pub fn config_is_read_or_refused_in_one_line(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let first = text.lines().next().unwrap_or_default().trim_start_matches('#');
    let (name, value) = first.split_once('=').unwrap_or((first, "1"));
    let name = format!("PEREGRINE_{}", name.trim());
    let variables = Variables::new([("A", "one"), ("B", "127.0.0.1:0"), (&name, value.trim())]);
    let read = || -> Result<sections::Serve, Wrong> {
        let mut root = tree::read(text, sections::KEYS, Path::new("folder"), &variables)?;
        tree::with_variables(&mut root, &variables)?;
        sections::read(&root, 2)
    };
    match read() {
        Ok(serve) => {
            assert_eq!(serve.setup.limits.check(), Ok(()));
            assert!(serve.workers > 0);
        }
        Err(wrong) => {
            let line = wrong.line("p.toml");
            assert!(!line.contains('\n'), "{line:?}");
            match wrong.source {
                ConfigSource::File(number) => {
                    assert!((1..=text.lines().count() + 1).contains(&number), "{line}");
                }
                ConfigSource::Variable(variable) => assert_eq!(variable, name),
                ConfigSource::Flag(flag) => panic!("there is no flag {flag}"),
            }
        }
    }
}

/// The example of the documentation without its prose, with each of its lines in turn uncommented,
/// removed or cut.
#[test]
fn config_with_changed_line_is_read_or_refused_in_one_line() {
    let text = include_str!("../../docs/peregrine.toml");
    let is_prose = |line: &&str| line.is_empty() || *line == "#" || line.starts_with("# ");
    let lines: Vec<&str> = text.lines().filter(|line| !is_prose(line)).collect();
    for at in 0..lines.len() {
        let others = [lines[at].trim_start_matches('#'), "", &lines[at][..lines[at].len() / 2]];
        for other in others.into_iter().chain(["x = ", "[limits]", "\u{1f600}"]) {
            let mut changed = lines.clone();
            changed[at] = other;
            config_is_read_or_refused_in_one_line(changed.join("\n").as_bytes());
        }
    }
}
