//! `bench report`: joins reports of earlier runs.

use std::path::Path;

use clap::{ArgMatches, Command};
use peregrine::load::report::LoadReport;

use super::super::{
    command::{flag, word},
    failure::CommandFailure,
    settings::{OutputFormat, Settings, with_only},
};

const HELP: &str = "Each FILE is a report that bench has written with --out FILE.json. Their \
                    targets are shown side by side in one report, on stdout and in each --out. \
                    Exit codes: 0 done; 1 failure; 2 wrong usage, such as a file that is not a \
                    report.";

/// The command.
pub fn command() -> Command {
    let command = Command::new("report")
        .about("Join reports of earlier runs into one")
        .override_usage("peregrine bench report FILE... [OPTIONS]")
        .arg(word("file", "FILE", "The JSON reports").required(true).num_args(1..))
        .arg(flag("out", "FILE", "A report: .html, .json, .csv or .txt; may be repeated"));
    with_only(command, &["output"]).after_help(HELP)
}

/// Joins the named reports.
///
/// # Errors
/// A [`CommandFailure`]: a file cannot be read, is not a report, or cannot be written.
pub fn run(
    words: &ArgMatches,
    settings: &Settings,
    format: OutputFormat,
) -> Result<(), CommandFailure> {
    let all = |name: &str| words.try_get_many::<String>(name).ok().flatten().unwrap_or_default();
    let files = super::flags::report_files(all("out").map(String::as_str))?;
    let mut reports = Vec::new();
    for file in all("file") {
        let json = super::flags::read_text(file)
            .map_err(|error| CommandFailure::usage(format!("cannot read {file}: {error}")))?;
        let report = LoadReport::read(json.as_bytes())
            .map_err(|error| CommandFailure::usage(format!("cannot use {file}: {error}")))?;
        reports.push((short_name(file), report));
    }
    let command = super::command_line(settings);
    let joined = LoadReport::join(reports, &command);
    let joined = joined.ok_or_else(|| CommandFailure::usage("missing FILE".to_owned()))?;
    super::write(&joined, &files, format)
}

/// The name of a file without its folders and its ending.
fn short_name(file: &str) -> String {
    let stem = Path::new(file).file_stem();
    stem.map_or_else(|| file.to_owned(), |stem| stem.to_string_lossy().into_owned())
}
