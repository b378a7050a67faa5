//! `peregrine serve config check|init|schema|show`.

use clap::ArgMatches;

use super::{ConfigOrigin, UsageError, make, say, schema, show};

/// The file with every key, commented out.
const COMMENTED_FILE: &str = include_str!("../../../../docs/peregrine.toml");

/// Does what the words behind `serve config` ask for. `flags` are those of `serve`.
///
/// # Errors
/// [`UsageError`]: what is wrong with the configuration, and where.
pub fn run(flags: &ArgMatches, words: &ArgMatches) -> Result<(), UsageError> {
    let word = words.subcommand_name().unwrap_or_default();
    if word == "schema" {
        say(&format!("{:#}\n", schema::schema()));
        return Ok(());
    }
    if word == "init" {
        say(COMMENTED_FILE);
        return Ok(());
    }
    let origin = ConfigOrigin::new(flags)?;
    if word == "check" && origin.file.is_none() {
        return Err(UsageError::new("there is nothing to check: add --config FILE"));
    }
    let config = origin.read_to_start()?;
    let agents = origin.agents(&config, &[])?;
    let text = match word {
        "show" => show::show(&origin, &config, &agents),
        _ => format!("{}: ok\n", origin.name()),
    };
    let checked = make(&origin, config, agents)?.server.check();
    checked.map_err(|error| UsageError(origin.server_line(&error)))?;
    say(&text);
    Ok(())
}
