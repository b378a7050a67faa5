//! The command line.
//!
//! An error of the user has exit code 2 and is reported on stderr: by `serve` in one line, by the
//! client with a code and, if available, a hint. With `-o json` the client writes an error object
//! to stdout. Unknown words and flags are reported before the command runs.

mod admin;
mod admin_tasks;
mod bench;
mod calls;
mod card_sign;
mod command;
mod dead_letters;
mod failure;
mod json_line;
mod nearest;
mod offers;
mod pages;
mod parts;
mod redaction;
mod reference;
pub(crate) mod serve;
mod settings;
mod text;
mod usage;

use std::{
    ffi::OsString,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::ArgMatches;

use command::CommandLine;
use failure::CommandFailure;
use settings::{OutputFormat, Settings, Surroundings};
use usage::UsageError;

/// True after a failed write to stdout, unless the reader has closed it.
static IS_OUTPUT_LOST: AtomicBool = AtomicBool::new(false);

/// The arguments, without the name of the program.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Runs the command in the arguments of the process. Unwritable output is a failure.
pub fn main() -> ExitCode {
    main_of(std::env::args_os().skip(1).collect()).into()
}

/// Runs the command in these arguments, once in a process; returns the exit code. See [`main`].
pub fn main_of(words: Vec<OsString>) -> u8 {
    let code = command_line(WORDS.get_or_init(|| words).clone());
    if IS_OUTPUT_LOST.load(Ordering::Relaxed) { code.max(1) } else { code }
}

/// The arguments as text.
fn words() -> Vec<String> {
    let words = WORDS.get().into_iter().flatten();
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

fn command_line(words: Vec<OsString>) -> u8 {
    let matches = match command::parse(words.clone()) {
        Ok(CommandLine::Run(matches)) => matches,
        Ok(CommandLine::Print(text)) => {
            print(&text);
            return 0;
        }
        Err(UsageError(line)) if is_client(&words) => {
            return fail(&CommandFailure::usage(line), requested_format(&words));
        }
        Err(UsageError(line)) => return end(Err((2, line))),
    };
    let one_line = |UsageError(line): UsageError| (2, line);
    match matches.subcommand() {
        Some(("serve", flags)) => end(serve::run(flags)),
        Some(("server", flags)) => end(serve::run_server(flags)),
        Some(("gateway", flags)) => end(serve::run_gateway(flags)),
        Some((bench::FLOOR_COMMAND, flags)) => {
            end(bench::run_floor(flags).map_err(|line| (1, line)))
        }
        Some(("completion", flags)) => end(pages::completion(flags).map_err(one_line)),
        Some(("man", flags)) => end(pages::man(flags).map_err(|line| (1, line))),
        Some(("card", card)) if card.subcommand_name() == Some("sign") => {
            let signed = card_sign::sign(card.subcommand().map_or(card, |(_, flags)| flags));
            signed.map_or_else(|failure| fail(&failure, requested_format(&words)), |()| 0)
        }
        _ => call(&matches, &words),
    }
}

/// Returns the exit code; an error is written to stderr in one line.
fn end(result: Result<(), (u8, String)>) -> u8 {
    match result {
        Ok(()) => 0,
        Err((code, line)) => {
            // If stderr is closed, only the exit code reports the error.
            let _ = writeln!(io::stderr(), "peregrine: {line}");
            code
        }
    }
}

/// Reports a failure of the client, as an object on stdout or as lines on stderr, and returns the
/// exit code.
fn fail(failure: &CommandFailure, format: OutputFormat) -> u8 {
    let text = failure.shown(format);
    match format {
        _ if failure.message.is_empty() => {}
        OutputFormat::Json => print(&text),
        OutputFormat::Text => eprint(&text),
    }
    failure.code.exit()
}

/// Runs a command of the client.
fn call(matches: &ArgMatches, words: &[OsString]) -> u8 {
    let (mut names, mut leaf, mut flags) = (Vec::new(), matches, vec![matches]);
    while let Some((name, inner)) = leaf.subcommand() {
        names.push(name);
        flags.insert(0, inner);
        leaf = inner;
    }
    let variable = |name: &str| std::env::var(name).ok();
    let folder = std::env::current_dir().unwrap_or_default();
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let around = Surroundings { variable: &variable, folder, home };
    let settings = match Settings::resolve(&flags, &around) {
        Ok(settings) => settings,
        Err(failure) => return fail(&failure, requested_format(words)),
    };
    let is_json = leaf.try_get_one("json").ok().flatten() == Some(&true);
    let format = match settings.output() {
        Ok(_) if is_json => OutputFormat::Json,
        Ok(format) => format,
        Err(failure) => return fail(&failure, OutputFormat::Text),
    };
    for line in &settings.warnings {
        warn(line);
    }
    match run(&names, leaf, settings, format) {
        Ok(()) => 0,
        Err(failure) => fail(&failure, format),
    }
}

fn run(
    names: &[&str],
    flags: &ArgMatches,
    settings: Settings,
    format: OutputFormat,
) -> Result<(), CommandFailure> {
    if names == ["config", "show"] {
        print(&settings::show(&settings, format));
        return Ok(());
    }
    if names == ["bench", "report"] {
        return bench::run_report(flags, &settings, format);
    }
    if let ["push", "dead", what] = names {
        return dead_letters::run(what, flags, &settings, format);
    }
    if let ["admin", "task", what] = names {
        return admin_tasks::run(what, flags, &settings, format);
    }
    calls::run(&names.join(" "), flags, settings, format)
}

/// Whether the words name a command of the client, as far as this is clear from invalid words.
fn is_client(words: &[OsString]) -> bool {
    let first = words.iter().find(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let clients =
        ["admin", "send", "card", "task", "push", "chat", "conformance", "bench", "auth", "config"];
    first.is_some_and(|word| clients.iter().any(|client| word == client))
        || requested_format(words) == OutputFormat::Json
}

/// The output format that invalid words select.
fn requested_format(words: &[OsString]) -> OutputFormat {
    let json = |text: &[u8]| text == b"json";
    let mut words = words.iter().map(|word| word.as_encoded_bytes()).peekable();
    let mut requested = None;
    while let Some(word) = words.next() {
        let value = match word {
            b"-o" | b"--output" => words.peek().copied(),
            _ => word.strip_prefix(b"--output=").or_else(|| word.strip_prefix(b"-o")),
        };
        requested =
            value.map(|value| json(value.strip_prefix(b"=").unwrap_or(value))).or(requested);
    }
    let variable = || std::env::var_os("A2ACLI_OUTPUT").is_some_and(|value| value == "json");
    if requested.unwrap_or_else(variable) { OutputFormat::Json } else { OutputFormat::Text }
}

/// Writes a warning in one line to stderr; if stderr is closed, it is dropped.
fn warn(line: &str) {
    let _ = writeln!(io::stderr(), "peregrine: warning: {}", text::one_line(line));
}

/// Writes text for people to stderr, in addition to the output of the command.
fn eprint(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

fn print(text: &str) {
    print_bytes(text.as_bytes());
}

fn print_bytes(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        // A closed reader, as in `peregrine --help | head -1`, is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            if !IS_OUTPUT_LOST.swap(true, Ordering::Relaxed) {
                eprint(&format!("peregrine: stdout cannot be written: {error}\n"));
            }
        }
        Ok(()) | Err(_) => {}
    }
}
