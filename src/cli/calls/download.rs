//! `task download`: the artifacts of a task as files.
//!
//! Invariant: a file name from an agent never leaves the folder, is never hidden, and never
//! replaces an existing file unless the user allows it. All names are chosen before the first file
//! is written.

use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use peregrine::{
    client::Answer,
    model::{Content, Part, TaskView, must_escape},
};

use super::{
    super::{
        eprint,
        failure::{CommandFailure, FailureCode},
        print,
        settings::OutputFormat,
        text::{TextOutput, one_line},
    },
    CalledAgent, Invocation,
    explain::failure,
    show::{self, AnswerShape},
};

/// Maximum bytes of a file name; file systems allow 255.
const NAME_BYTES_MAX: usize = 120;

/// One file to write.
struct SavedFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Saves the artifacts of a task.
///
/// # Errors
/// A [`CommandFailure`], for example if a file already exists.
pub async fn download(agent: &CalledAgent, on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let answer = agent.client.get_task(&on.words[0], Some(0)).await;
    let answer: Answer = answer.map_err(|error| failure(on, error))?;
    let Some(view) = answer.task() else {
        return Err(CommandFailure::new(
            FailureCode::Internal,
            "the agent answered without a task",
        ));
    };
    let folder = Path::new(on.flag("dir").unwrap_or("."));
    let wanted = on.flag_list("artifact");
    check_artifacts(view, &wanted)?;
    let (files, elsewhere) = files(view, folder, &wanted);
    let overwrites = on.flags.get_flag("overwrite");
    if let Some(existing) = files.iter().find(|file| !overwrites && file.path.exists()) {
        let line = format!("{} already exists", existing.path.display());
        return Err(CommandFailure::usage(line).hint("--overwrite, or --dir DIR"));
    }
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))?;
    let mut output = TextOutput::new(on.is_verbose);
    let status = view.status();
    output.ids(&view.id().to_str(), &view.context_id().to_str(), status.state);
    for file in &files {
        write(file, overwrites).map_err(|error| unwritable(&file.path, &error))?;
        output.field("Saved", &file.path.display().to_string());
        output.field("Size", &format!("{} bytes", file.bytes.len()));
    }
    for url in elsewhere {
        output.field("URL", &url);
    }
    match on.format {
        OutputFormat::Text => print(&output.text),
        OutputFormat::Json => {
            show::answer(on, &answer, AnswerShape::AsItIs, false);
            for file in &files {
                eprint(&format!("saved {}\n", one_line(&file.path.display().to_string())));
            }
        }
    }
    Ok(())
}

/// Rejects the name of an artifact that the task does not have.
fn check_artifacts(view: TaskView<'_>, wanted: &[&str]) -> Result<(), CommandFailure> {
    let ids = view.artifacts().map(|one| one.head().artifact_id().to_str().into_owned());
    let ids: Vec<String> = ids.collect();
    let Some(other) = wanted.iter().find(|one| !ids.iter().any(|id| id == *one)) else {
        return Ok(());
    };
    let line = match ids.is_empty() {
        true => format!("--artifact {other:?}: the task has no artifacts"),
        false => format!("--artifact {other:?} must be one of {}", ids.join(", ")),
    };
    Err(CommandFailure::usage(line))
}

/// The files of the artifacts in `wanted` (empty: all), and the URLs of files that the task only
/// links.
fn files(view: TaskView<'_>, folder: &Path, wanted: &[&str]) -> (Vec<SavedFile>, Vec<String>) {
    let (mut files, mut elsewhere, mut used) = (Vec::new(), Vec::new(), HashMap::new());
    for artifact in view.artifacts() {
        let head = artifact.head();
        let id = head.artifact_id().to_str();
        if !wanted.is_empty() && !wanted.iter().any(|one| *one == id) {
            continue;
        }
        let name = head.name().map(|name| name.to_str()).unwrap_or(id);
        for (part, bytes, ending) in contents(artifact.parts()) {
            let Some(bytes) = bytes else {
                if let Content::Url(url) = part.content() {
                    elsewhere.push(url.to_str().into_owned());
                }
                continue;
            };
            let own = part.filename().map(|name| safe_name(&name.to_str()));
            let own = own.unwrap_or_else(|| format!("{}{ending}", safe_name(&name)));
            let path = folder.join(fresh(own, &mut used));
            files.push(SavedFile { path, bytes });
        }
    }
    (files, elsewhere)
}

/// The parts with their bytes and the extension of a generated name. Consecutive pieces of a text
/// are joined.
fn contents<'p>(
    parts: impl Iterator<Item = Part<'p>>,
) -> Vec<(Part<'p>, Option<Vec<u8>>, &'static str)> {
    let mut all: Vec<(Part<'p>, Option<Vec<u8>>, &'static str)> = Vec::new();
    for part in parts {
        let (bytes, ending) = match part.content() {
            Content::Text(text) => {
                let is_piece = part.as_text().is_some();
                let before = all.last_mut().filter(|(before, ..)| before.as_text().is_some());
                if let Some((_, Some(bytes), _)) = before.filter(|_| is_piece) {
                    bytes.extend_from_slice(text.to_str().as_bytes());
                    continue;
                }
                (Some(text.to_str().into_owned().into_bytes()), ".txt")
            }
            Content::Data(json) => (Some(json.as_str().as_bytes().to_vec()), ".json"),
            Content::Raw(raw) => (raw.decode_base64(), ".bin"),
            Content::Unknown(part) => (Some(part.as_str().as_bytes().to_vec()), ".json"),
            Content::Url(_) => (None, ""),
        };
        all.push((part, bytes, ending));
    }
    all
}

/// The last segment of a path, without characters that would hide the file, end its name or lead to
/// another folder.
fn safe_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    // Characters that reverse the text direction would fake the file's extension.
    let is_plain =
        |c: &char| !must_escape(*c) && !matches!(c, ':' | '*' | '?' | '"' | '<' | '>' | '|');
    let plain: String = last.chars().filter(is_plain).collect();
    // Trimmed after the removal above: a removed character may precede the dot that hides a file,
    // or the hyphen that makes a name an option of a command (`rm *`).
    let plain = plain.trim_start_matches(|c: char| matches!(c, '.' | '-') || c.is_whitespace());
    let mut end = plain.len().min(NAME_BYTES_MAX);
    while !plain.is_char_boundary(end) {
        end -= 1;
    }
    let name = plain[..end].trim();
    if name.is_empty() { "artifact".to_owned() } else { name.to_owned() }
}

/// Returns `name`, with a number if it is used. `used` maps each used name in lower case to the
/// last number tried, so that many files of one name do not try all numbers.
fn fresh(name: String, used: &mut HashMap<String, u64>) -> String {
    let (stem, ending) = match name.rfind('.').filter(|at| *at > 0) {
        Some(at) => name.split_at(at),
        None => (name.as_str(), ""),
    };
    // Names that differ only in case are the same on some file systems.
    let lower = name.to_lowercase();
    let Some(mut number) = used.get(&lower).copied() else {
        used.insert(lower, 1);
        return name;
    };
    let own = loop {
        number += 1;
        let own = format!("{stem}-{number}{ending}");
        if !used.contains_key(&own.to_lowercase()) {
            break own;
        }
    };
    used.insert(own.to_lowercase(), 1);
    used.insert(lower, number);
    own
}

/// Writes a new file. An existing file is replaced as a whole; a link is not followed.
fn write(file: &SavedFile, overwrites: bool) -> io::Result<()> {
    if !overwrites {
        let mut new = OpenOptions::new().write(true).create_new(true).open(&file.path)?;
        return new.write_all(&file.bytes);
    }
    let folder = file.path.parent().unwrap_or(Path::new("."));
    let draft = folder.join(format!(".peregrine-{}", std::process::id()));
    // An existing draft is from a process with the same id, or is a link.
    let _ = fs::remove_file(&draft);
    let mut new = OpenOptions::new().write(true).create_new(true).open(&draft)?;
    new.write_all(&file.bytes)?;
    fs::rename(&draft, &file.path)
}

fn unwritable(path: &Path, error: &io::Error) -> CommandFailure {
    let line = format!("cannot write {}: {error}", path.display());
    CommandFailure::new(FailureCode::Internal, line)
}

#[cfg(test)]
mod tests {
    use peregrine::model::{ArtifactBuf, Generation, Json, PartBuf, PartsBuf, TaskBuf};

    use super::*;

    #[test]
    fn unsafe_characters_and_paths_are_removed_from_names() {
        for (name, safe) in [
            ("a.txt", "a.txt"),
            ("../../etc/passwd", "passwd"),
            ("..\\..\\x.exe", "x.exe"),
            ("/abs", "abs"),
            ("..", "artifact"),
            ("", "artifact"),
            (".bashrc", "bashrc"),
            ("a\0b\n:c", "abc"),
            ("  ", "artifact"),
            ("\0.env", "env"),
            (":.bashrc", "bashrc"),
            (". .bashrc", "bashrc"),
            ("\0..", "artifact"),
            ("a\u{202e}gnp.exe", "agnp.exe"),
            ("\u{2066}.env", "env"),
            ("-rf", "rf"),
            ("--", "artifact"),
            ("./-x", "x"),
            (".-\u{2028} --checkpoint=1", "checkpoint=1"),
        ] {
            assert_eq!(safe_name(name), safe, "{name:?}");
        }
        assert_eq!(safe_name(&"é".repeat(100)).len(), NAME_BYTES_MAX);
    }

    #[test]
    fn parts_with_equal_names_get_distinct_names_quickly() {
        // Trying each used number would take hours for so many files.
        let mut used = Default::default();
        let all = (0..200_000).map(|_| fresh("a.txt".to_owned(), &mut used));
        assert_eq!(all.last().unwrap(), "a-200000.txt");
        let mut used = Default::default();
        let mut names = ["a", "A-2", "a", "a-2", "a", "a-2"].map(str::to_owned);
        names.iter_mut().for_each(|name| *name = fresh(std::mem::take(name), &mut used));
        assert_eq!(names, ["a", "A-2", "a-3", "a-2-2", "a-4", "a-2-3"]);
    }

    #[cfg(unix)]
    #[test]
    fn download_does_not_write_through_symlink() {
        let folder = std::env::temp_dir().join(format!("peregrine-link-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (other, draft) = (folder.join("other"), format!(".peregrine-{}", std::process::id()));
        let link = |name: &str| std::os::unix::fs::symlink(&other, folder.join(name)).unwrap();
        fs::write(&other, "mine").unwrap();
        link(&draft);
        link("a.txt");
        let file = SavedFile { path: folder.join("a.txt"), bytes: b"theirs".to_vec() };
        assert!(write(&file, false).is_err());
        write(&file, true).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"mine");
        assert_eq!(fs::read(&file.path).unwrap(), b"theirs");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn artifact_parts_are_saved_with_distinct_file_names() {
        let mut task = TaskBuf::new("t", "c", Generation::V1).unwrap();
        let parts = PartsBuf::new()
            .text("one ")
            .text("two")
            .part(&PartBuf::data(Json::parse("{\"n\":1}").unwrap()))
            .part(&PartBuf::bytes(b"x").filename("../A.txt"))
            .part(&PartBuf::bytes(b"y").filename("a.txt"))
            .part(&PartBuf::url("https://a.example/z"));
        task.artifact(&ArtifactBuf::new("1", &parts).name("re/port")).unwrap();
        task.artifact(&ArtifactBuf::new("2", &PartsBuf::new().text("no"))).unwrap();
        let (files, elsewhere) = files(task.view(), Path::new("f"), &["1"]);
        let files: Vec<(&str, &[u8])> =
            files.iter().map(|file| (file.path.to_str().unwrap(), &file.bytes[..])).collect();
        assert_eq!(
            files,
            [
                ("f/port.txt", &b"one two"[..]),
                ("f/port.json", b"{\"n\":1}"),
                ("f/A.txt", b"x"),
                ("f/a-2.txt", b"y"),
            ]
        );
        assert_eq!(elsewhere, ["https://a.example/z"]);
    }
}
