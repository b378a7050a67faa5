//! `peregrine serve config check|init|schema|show`.

use clap::ArgMatches;

use super::{ConfigOrigin, UsageError, code, make, print, schema, show};

/// The file with every key, commented out.
const COMMENTED_FILE: &str = include_str!("../../../../docs/peregrine.toml");

/// Runs a subcommand of `serve config`. `flags` are the flags of `serve`.
///
/// # Errors
/// An exit code and one line with the error of the configuration and its position: the same error
/// with which `serve` would end.
pub fn run(flags: &ArgMatches, words: &ArgMatches) -> Result<(), (u8, String)> {
    let wrong = |UsageError(line): UsageError| (2, line);
    let word = words.subcommand_name().unwrap_or_default();
    if word == "schema" {
        print(&format!("{:#}\n", schema::schema()));
        return Ok(());
    }
    if word == "init" {
        print(COMMENTED_FILE);
        return Ok(());
    }
    let origin = ConfigOrigin::new(flags).map_err(wrong)?;
    if word == "check" && origin.file.is_none() {
        return Err(wrong(UsageError::new("nothing to check: add --config FILE")));
    }
    let config = origin.read_to_start().map_err(wrong)?;
    let agents = origin.agents(&config, &[]).map_err(wrong)?;
    let text = match word {
        "show" => show::show(&origin, &config, &agents),
        _ => format!("{}: ok\n", origin.name()),
    };
    let made = make(&origin, config, agents).map_err(wrong)?;
    made.server.check().map_err(|error| (code(&error), origin.server_line(&error)))?;
    print(&text);
    Ok(())
}
