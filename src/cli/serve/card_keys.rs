//! The keys that sign agent cards.

use std::{path::PathBuf, sync::Arc};

use peregrine::{
    client::card::SigningKeys,
    engine::{CardSigner, Setup},
};
use zeroize::Zeroizing;

use super::config::file;

/// Reads the keys, sets them to sign cards, and returns them.
///
/// # Errors
/// A file cannot be read or has no usable key, or the server has keys but no fixed host.
pub fn sign(
    setup: &mut Setup,
    files: &[(PathBuf, Option<String>)],
) -> Result<Arc<SigningKeys>, String> {
    if files.is_empty() {
        return Ok(Arc::default());
    }
    let mut keys = SigningKeys::default();
    for (path, kid) in files {
        let shown = path.display();
        let pem = file::read(path).map(Zeroizing::new);
        let pem = pem.map_err(|error| format!("cannot read {shown}: {error}"))?;
        keys.add(&pem, kid.as_deref()).map_err(|error| format!("{shown}: {error}"))?;
    }
    if setup.public_url.is_none() && setup.allow_hosts.iter().all(|host| host == "*") {
        let line = "signed cards need a fixed host: add --public-url URL or --allow-host HOST";
        return Err(line.to_owned());
    }
    let keys = Arc::new(keys);
    setup.card_signer = Some(Arc::clone(&keys) as Arc<dyn CardSigner>);
    Ok(keys)
}
