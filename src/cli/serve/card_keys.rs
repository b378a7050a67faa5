//! `--card-key`: the keys that cards are signed with.

use std::{fs, path::PathBuf, sync::Arc};

use peregrine::{client::card::SigningKeys, engine::Setup};
use zeroize::Zeroizing;

use super::super::usage::UsageError;

/// Reads the keys, and has cards signed with them.
///
/// # Errors
/// [`UsageError`]: a file that cannot be read, or holds no key that signs; keys without a name to
/// sign for.
pub fn sign(setup: &mut Setup, files: &[(PathBuf, Option<String>)]) -> Result<(), UsageError> {
    if files.is_empty() {
        return Ok(());
    }
    let mut keys = SigningKeys::default();
    for (file, kid) in files {
        let shown = file.display();
        let pem = fs::read(file).map(Zeroizing::new);
        let pem =
            pem.map_err(|error| UsageError(format!("--card-key: cannot read {shown}: {error}")))?;
        let added = keys.add(&pem, kid.as_deref());
        added.map_err(|error| UsageError(format!("--card-key {shown}: {error}")))?;
    }
    if setup.public_url.is_none() && setup.allow_hosts.iter().all(|host| host == "*") {
        let line =
            "--card-key signs cards that name --public-url URL or --allow-host HOST: give one";
        return Err(UsageError(line.to_owned()));
    }
    setup.card_signer = Some(Arc::new(keys));
    Ok(())
}
