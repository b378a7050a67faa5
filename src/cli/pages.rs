//! Completions and manual pages, generated from the commands.

use std::{fs, path::Path};

use clap::{ArgMatches, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{command::tree, print_bytes, usage::UsageError};

/// Prints the completion script for a shell.
///
/// # Errors
/// [`UsageError`]: the shell is not supported.
pub fn completion(flags: &ArgMatches) -> Result<(), UsageError> {
    let word = flags.get_one::<String>("shell").map(String::as_str).unwrap_or_default();
    let shell = word.parse::<Shell>().map_err(|_| {
        UsageError::new(format!(
            "unknown shell {word:?}; supported shells: bash, elvish, fish, powershell, zsh"
        ))
    })?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tree(), "peregrine", &mut script);
    print_bytes(&script);
    Ok(())
}

/// Writes the manual pages.
///
/// # Errors
/// One line: the folder cannot be written.
pub fn man(flags: &ArgMatches) -> Result<(), String> {
    let mut tree = tree();
    tree.build();
    let Some(folder) = flags.get_one::<String>("folder") else {
        print_bytes(&page(&tree, "peregrine")?);
        return Ok(());
    };
    let folder = Path::new(folder);
    let cannot_write = |error| format!("cannot write {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(cannot_write)?;
    let mut open = vec![("peregrine".to_owned(), &tree)];
    while let Some((name, command)) = open.pop() {
        fs::write(folder.join(format!("{name}.1")), page(command, &name)?).map_err(cannot_write)?;
        let inner = command.get_subcommands().filter(|inner| inner.get_name() != "help");
        open.extend(inner.map(|inner| (format!("{name}-{}", inner.get_name()), inner)));
    }
    Ok(())
}

fn page(command: &Command, name: &str) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    // Options without a description: the manual page would list options that the short help hides.
    let whole = command.clone().mut_args(|arg| arg.hide_short_help(false));
    let man = Man::new(whole).title(name);
    man.render(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}
