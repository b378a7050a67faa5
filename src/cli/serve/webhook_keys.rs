//! The keys that sign webhook posts.

use std::{path::PathBuf, sync::Arc};

use peregrine::{
    client::{WebhookKeys, card::SigningKeys},
    engine::Setup,
};
use zeroize::Zeroizing;

use super::config::file;

/// Reads the keys, if there are any, and uses them to sign posts.
///
/// # Errors
/// A file that cannot be read or has no usable key, or a key that also signs cards.
pub fn sign(setup: &mut Setup, files: &[PathBuf], card_keys: &SigningKeys) -> Result<(), String> {
    if files.is_empty() {
        return Ok(());
    }
    let mut keys = WebhookKeys::default();
    for path in files {
        let shown = path.display();
        let pem = file::read(path).map(Zeroizing::new);
        let pem = pem.map_err(|error| format!("cannot read {shown}: {error}"))?;
        keys.add(&pem).map_err(|error| format!("{shown}: {error}"))?;
        if keys.kids().last().is_some_and(|kid| card_keys.has_key(kid)) {
            return Err(format!("{shown}: this key signs cards: webhooks need a separate key"));
        }
    }
    if setup.push.is_some() {
        setup.webhook_signer = Some(Arc::new(keys));
    }
    Ok(())
}
