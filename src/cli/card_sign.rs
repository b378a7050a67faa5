//! `card sign`: adds the user's signatures to a card.

use std::path::Path;

use clap::ArgMatches;
use peregrine::{
    client::card::{AgentCard, SigningKeys},
    engine::CardSigner,
};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{
    calls::file,
    failure::{CommandFailure, FailureCode},
    json_line::json_lines,
    print,
};

/// Writes the card with one more signature for each key and form; it retains existing signatures.
///
/// # Errors
/// A [`CommandFailure`]: no key, a key that cannot sign, or an unreadable card.
pub fn sign(flags: &ArgMatches) -> Result<(), CommandFailure> {
    let keys = keys(flags)?;
    let path = flags.get_one::<String>("card").map(String::as_str).unwrap_or_default();
    let invalid =
        |what: String| CommandFailure::new(FailureCode::CardInvalid, format!("{path}: {what}"));
    let json = file(Path::new(path))?;
    AgentCard::read(&json).map_err(|error| invalid(error.to_string()))?;
    let mut card: Value =
        serde_json::from_slice(&json).map_err(|error| invalid(error.to_string()))?;
    let before = card.as_object_mut().and_then(|members| members.remove("signatures"));
    let mut signatures = match before {
        Some(Value::Array(before)) => before,
        Some(_) | None => Vec::new(),
    };
    let made = keys.sign(card.to_string().as_bytes());
    signatures.extend(
        made.into_iter()
            .map(|one| json!({ "protected": one.protected, "signature": one.signature })),
    );
    card["signatures"] = signatures.into();
    let text = serde_json::to_string_pretty(&card).map_err(|error| invalid(error.to_string()))?;
    print(&json_lines(&text));
    Ok(())
}

fn keys(flags: &ArgMatches) -> Result<SigningKeys, CommandFailure> {
    let all = |name| -> Vec<&String> { flags.get_many(name).into_iter().flatten().collect() };
    let (files, kids) = (all("key"), all("kid"));
    if files.is_empty() {
        return Err(CommandFailure::usage("name a key to sign with: --key FILE".to_owned()));
    }
    if kids.len() > files.len() {
        let line = "there are more key ids (--kid) than keys (--key)";
        return Err(CommandFailure::usage(line));
    }
    let mut keys = SigningKeys::default();
    for (at, path) in files.iter().enumerate() {
        let pem = file(Path::new(path)).map(Zeroizing::new);
        let pem = pem.map_err(|failure| CommandFailure::usage(failure.message))?;
        let added = keys.add(&pem, kids.get(at).map(|kid| kid.as_str()));
        added.map_err(|error| CommandFailure::usage(format!("cannot use {path}: {error}")))?;
    }
    Ok(keys)
}
