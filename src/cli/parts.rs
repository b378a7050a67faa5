//! The message of `send`: its parts in the order of the arguments.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileTypeExt,
    path::Path,
};

use clap::ArgMatches;
use peregrine::model::{Json, PartBuf, PartsBuf};

use super::failure::CommandFailure;

/// Maximum bytes of one part; a larger part is sent by its URL.
const PART_BYTES_MAX: u64 = 48 << 20;

/// The id of the words argument of a command.
pub const WORDS: &str = "words";

/// One part as named by the arguments.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedPart {
    kind: NamedKind,
    value: String,
    media_type: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedKind {
    Word,
    Text,
    File,
    Data,
}

impl NamedPart {
    /// The text on the standard input, for the word `-`.
    pub fn standard_input() -> NamedPart {
        NamedPart { kind: NamedKind::Word, value: "-".to_owned(), media_type: None }
    }

    fn is_standard_input(&self) -> bool {
        matches!(self.kind, NamedKind::Word | NamedKind::Data) && self.value == "-"
    }
}

/// Whether the standard input is a pipe, a socket or a file, so that it may contain a text.
pub fn is_piped() -> bool {
    let kind = std::fs::metadata("/dev/stdin").map(|stdin| stdin.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_file() || kind.is_socket())
}

/// The parts that the flags and the words name. `words_before`: the number of words before the
/// text, such as the agent.
///
/// # Errors
/// A [`CommandFailure`] of usage: `--media-type` does not follow a part.
pub fn named(flags: &ArgMatches, words_before: usize) -> Result<Vec<NamedPart>, CommandFailure> {
    let mut found: Vec<(usize, Option<NamedKind>, &String)> = Vec::new();
    let kinds = [
        (WORDS, Some(NamedKind::Word)),
        ("text", Some(NamedKind::Text)),
        ("file", Some(NamedKind::File)),
        ("data", Some(NamedKind::Data)),
        ("media-type", None),
    ];
    for (name, kind) in kinds {
        let values = flags.get_many::<String>(name).into_iter().flatten();
        let indices = flags.indices_of(name).into_iter().flatten();
        let skipped = if name == WORDS { words_before } else { 0 };
        found.extend(indices.zip(values).skip(skipped).map(|(at, value)| (at, kind, value)));
    }
    found.sort_by_key(|(at, ..)| *at);
    let mut parts: Vec<NamedPart> = Vec::new();
    for (_, kind, value) in found {
        match (kind, parts.last_mut()) {
            (Some(kind), _) => {
                parts.push(NamedPart { kind, value: value.clone(), media_type: None });
            }
            (None, Some(part)) if part.kind != NamedKind::Word && part.media_type.is_none() => {
                part.media_type = Some(value.clone());
            }
            (None, _) => {
                let line = "--media-type must follow --text, --file or --data directly";
                return Err(
                    CommandFailure::usage(line).hint("--file a.bin --media-type application/pdf")
                );
            }
        }
    }
    Ok(parts)
}

/// Reads the content of the parts, `-` from `stdin`. The final line end of a text from `stdin` is
/// removed.
///
/// # Errors
/// A [`CommandFailure`] of usage: a file is unreadable or too long, data is not JSON, or the
/// standard input is empty.
pub fn read(named: &[NamedPart], stdin: &mut dyn Read) -> Result<PartsBuf, CommandFailure> {
    if named.iter().filter(|part| part.is_standard_input()).count() > 1 {
        let line = "- (standard input) can be given only once, as the text or after --data";
        return Err(CommandFailure::usage(line));
    }
    let mut parts = PartsBuf::new();
    for part in named {
        let value = part.value.as_str();
        let mut made = match part.kind {
            NamedKind::Word if value == "-" => PartBuf::text(text(stdin)?.as_str()),
            NamedKind::Word | NamedKind::Text => PartBuf::text(value),
            NamedKind::File => file(value, part.media_type.is_none())?,
            NamedKind::Data => {
                let bytes = match value {
                    "-" => bounded(stdin, "the standard input")?,
                    path => open(path)?,
                };
                let json = Json::parse(without_mark(&bytes)).map_err(|error| {
                    CommandFailure::usage(format!("--data {value}: not JSON: {error}"))
                })?;
                PartBuf::data(json)
            }
        };
        if let Some(media_type) = &part.media_type {
            made = made.media_type(media_type.as_str());
        }
        parts = parts.part(&made);
    }
    Ok(parts)
}

/// The text on the standard input.
fn text(stdin: &mut dyn Read) -> Result<String, CommandFailure> {
    let bytes = bounded(stdin, "the standard input")?;
    let mut text = String::from_utf8(without_mark(&bytes).to_vec()).map_err(|_| {
        let line = "the standard input is not UTF-8 text";
        CommandFailure::usage(line).hint("send it as a file: --file PATH")
    })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    match text.is_empty() {
        true => {
            let line = "nothing to send: the standard input is empty";
            Err(CommandFailure::usage(line).hint("peregrine send -a REF \"TEXT\""))
        }
        false => Ok(text),
    }
}

/// A document without the byte order mark that an editor may add.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

/// The part for a file by value, or a URL by reference.
fn file(value: &str, infers: bool) -> Result<PartBuf, CommandFailure> {
    let is_url = ["http://", "https://"].iter().any(|scheme| value.starts_with(scheme));
    let name = match is_url {
        true => value.split(['?', '#']).next().unwrap_or(value).rsplit('/').next().unwrap_or(""),
        false => Path::new(value).file_name().and_then(|name| name.to_str()).unwrap_or_default(),
    };
    let mut part = if is_url { PartBuf::url(value) } else { PartBuf::bytes(&open(value)?) };
    if !name.is_empty() {
        part = part.filename(name);
    }
    Ok(match media_type(name).filter(|_| infers) {
        Some(media_type) => part.media_type(media_type),
        None => part,
    })
}

/// The usual media type of files with this extension.
pub fn media_type(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => return None,
    })
}

fn open(path: &str) -> Result<Vec<u8>, CommandFailure> {
    let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
    bounded(&mut file, path)
}

fn bounded(source: &mut dyn Read, name: &str) -> Result<Vec<u8>, CommandFailure> {
    let mut bytes = Vec::new();
    let read = source.take(PART_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(name, &error))?;
    if bytes.len() as u64 > PART_BYTES_MAX {
        let line = format!("{name} is longer than {PART_BYTES_MAX} bytes");
        return Err(
            CommandFailure::usage(line).hint("put it where the agent can fetch it: --file URL")
        );
    }
    Ok(bytes)
}

fn unreadable(name: &str, error: &io::Error) -> CommandFailure {
    CommandFailure::usage(format!("cannot read {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use peregrine::model::{Content, MessageBuf};

    use super::*;
    use crate::cli::command::{CommandLine, parse};

    fn parts(words: &[&str], before: usize) -> Result<Vec<NamedPart>, CommandFailure> {
        let words = ["send"].iter().chain(words).map(|word| word.into()).collect();
        let Ok(CommandLine::Run(matches)) = parse(words) else { panic!("no command") };
        named(matches.subcommand().unwrap().1, before)
    }

    fn read_all(words: &[&str], stdin: &str) -> Result<MessageBuf, CommandFailure> {
        let parts = read(&parts(words, 0)?, &mut stdin.as_bytes())?;
        Ok(MessageBuf::agent(&parts))
    }

    #[test]
    fn parts_keep_their_order() {
        let words = ["--data", "-", "first", "--text", "-2", "--file", "https://a.example/b.pdf?c"];
        let message = read_all(&words, "{\"n\": 1.0}").unwrap();
        let shown: Vec<String> = message
            .view()
            .parts()
            .map(|part| match part.content() {
                Content::Text(text) => text.to_str().into_owned(),
                Content::Data(json) => json.as_str().to_owned(),
                Content::Url(url) => format!(
                    "{} {} {}",
                    url.to_str(),
                    part.filename().unwrap().to_str(),
                    part.media_type().unwrap().to_str()
                ),
                Content::Raw(_) | Content::Unknown(_) => "raw".to_owned(),
            })
            .collect();
        let url = "https://a.example/b.pdf?c b.pdf application/pdf";
        assert_eq!(shown, ["{\"n\": 1.0}", "first", "-2", url]);
        assert_eq!(parts(&["host", "hello", "--text", "x"], 1).unwrap().len(), 2);
    }

    #[test]
    fn dash_reads_text_part_from_standard_input() {
        let text_of = |stdin: &str| -> Result<String, String> {
            let message = read_all(&["-"], stdin).map_err(|failure| failure.message)?;
            let part = message.view().parts().next().unwrap();
            let Content::Text(text) = part.content() else { panic!("no text") };
            Ok(text.to_str().into_owned())
        };
        assert_eq!(text_of("one\ntwo\n\n").unwrap(), "one\ntwo\n");
        assert_eq!(text_of("hello\r\n").unwrap(), "hello");
        assert!(text_of("\n").unwrap_err().contains("is empty"));
        let part = [NamedPart::standard_input()];
        assert!(read(&part, &mut &b"\xff"[..]).err().unwrap().message.contains("UTF-8"));
    }

    #[test]
    fn media_type_flag_applies_to_the_preceding_part() {
        let named = parts(&["--text", "a", "--file", "b", "-o", "json", "--media-type", "x/y"], 0);
        let types: Vec<_> = named.unwrap().into_iter().map(|part| part.media_type).collect();
        assert_eq!(types, [None, Some("x/y".to_owned())]);
        for words in [
            &["--media-type", "x/y", "--text", "a"][..],
            &["hello", "--media-type", "x/y"],
            &["--text", "a", "--media-type", "x/y", "--media-type", "x/z"],
        ] {
            assert!(parts(words, 0).unwrap_err().message.contains("must follow"), "{words:?}");
        }
    }

    #[test]
    fn invalid_part_arguments_are_rejected() {
        for (words, expected) in [
            (&["--data", "-"][..], "not JSON"),
            (&["--data", "-", "--data", "-"], "can be given only once"),
            (&["-", "--data", "-"], "can be given only once"),
            (&["--file", "no/such/file"], "cannot read no/such/file"),
            (&["--data", "no/such/file"], "cannot read no/such/file"),
        ] {
            let failure = read_all(words, "{").err().unwrap();
            assert!(failure.message.contains(expected), "{}", failure.message);
        }
    }
}
