//! `card`: get, lint and verify.

use std::path::Path;

use peregrine::{
    client::card::{
        AgentCard, ApiKeyLocation, CardFinding, CardKeys, FindingLevel, SecurityScheme,
        SignatureOutcome, lint, validate, verify,
    },
    model::Generation,
};
use serde_json::{Value, json};

use super::{
    super::{
        eprint,
        failure::{CommandFailure, FailureCode},
        print,
        settings::OutputFormat,
        text::{TextOutput, one_line},
    },
    CalledAgent, Invocation, agent,
    explain::failure,
};

/// Shows the card of an agent; with `--extended`, its card for authenticated callers.
///
/// # Errors
/// A [`CommandFailure`]: with `--validate`, errors of the schema; with keys, no valid signature on
/// a signed card.
pub async fn get(on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let validates = on.flags.get_flag("validate");
    let keys = keys(on)?;
    if on.flags.get_flag("extended") {
        let agent = CalledAgent::of_public_card(on).await?;
        let card = agent.client.extended_card().await;
        let card = card.map_err(|error| failure(on, error))?;
        if validates {
            refuse(on, &validate(card.raw_json().as_bytes()))?;
        }
        return show(on, &card, validates, &keys);
    }
    let (json, _) = agent::card_json(on).await?;
    if validates {
        refuse(on, &validate(&json))?;
    }
    let card = AgentCard::read(&json).map_err(|error| failure(on, error.into()))?;
    show(on, &card, validates, &keys)
}

/// Prints all findings of a card.
///
/// # Errors
/// A [`CommandFailure`]: one of the findings is an error.
pub async fn check(on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let (json, url) = agent::card_json(on).await?;
    let findings = lint(&json, url.as_ref());
    match on.format {
        OutputFormat::Json => {
            let list = findings.iter().map(|finding| {
                json!({
                    "level": level(finding), "member": finding.member,
                    "message": finding.message, "clause": finding.clause,
                })
            });
            on.print_json(
                json!({ "findings": list.collect::<Vec<Value>>() }).to_string().as_bytes(),
            );
        }
        OutputFormat::Text => {
            let mut output = on.text();
            for finding in &findings {
                let label = if finding.level == FindingLevel::Error { "Error" } else { "Warning" };
                output.field(label, &finding.sentence());
            }
            let errors = count(&findings, FindingLevel::Error);
            output.field("Errors", &errors.to_string());
            output.field("Warnings", &(findings.len() - errors).to_string());
            print(&output.text);
        }
    }
    match count(&findings, FindingLevel::Error) {
        0 => Ok(()),
        _ => Err(CommandFailure::reported(FailureCode::CardInvalid)),
    }
}

/// Prints whether one of the user's keys has signed a card: verified, unverifiable or absent. An
/// unsigned card is not a failure (A2A 1.0 §8.4).
///
/// # Errors
/// A [`CommandFailure`]: an unreadable key or card, or no valid signature on a signed card.
pub async fn check_signatures(on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let keys = keys(on)?;
    let card = agent::card(on).await?;
    if keys.is_empty() && !card.signatures.is_empty() {
        eprint("Hint: give a key to check the card with: --public-key FILE, or --jwks FILE\n");
    }
    let outcome = verified(&card, &keys);
    let word = match &outcome {
        SignatureOutcome::Verified { .. } => "verified",
        SignatureOutcome::Unverifiable(_) => "unverifiable",
        SignatureOutcome::Absent => "absent",
    };
    match on.format {
        OutputFormat::Json => {
            let document = json!({ "signature": word, "message": outcome.to_string() });
            on.print_json(document.to_string().as_bytes());
        }
        OutputFormat::Text => {
            let mut output = on.text();
            output.field("Name", &card.name);
            output.field("Signature", &outcome.to_string());
            print(&output.text);
        }
    }
    match outcome {
        SignatureOutcome::Verified { .. } | SignatureOutcome::Absent => Ok(()),
        SignatureOutcome::Unverifiable(_) => {
            Err(CommandFailure::reported(FailureCode::CardInvalid))
        }
    }
}

/// The keys that the flags name.
fn keys(on: &Invocation<'_>) -> Result<Vec<CardKeys>, CommandFailure> {
    let mut keys = Vec::new();
    for file in [on.flag_list("public-key"), on.flag_list("jwks")].concat() {
        let text = agent::file(Path::new(file));
        let text = text.map_err(|failure| CommandFailure::usage(failure.message))?;
        let wrong = |error| CommandFailure::usage(format!("cannot use {file}: {error}"));
        keys.push(CardKeys::read(&text).map_err(wrong)?);
    }
    Ok(keys)
}

/// The outcome for the first keys that have signed a card, or else for the last keys. Without keys
/// no signature can be verified.
fn verified(card: &AgentCard, keys: &[CardKeys]) -> SignatureOutcome {
    let mut outcome = verify(card, &CardKeys::default());
    for keys in keys {
        outcome = verify(card, keys);
        if matches!(outcome, SignatureOutcome::Verified { .. }) {
            break;
        }
    }
    outcome
}

fn count(findings: &[CardFinding], level: FindingLevel) -> usize {
    findings.iter().filter(|finding| finding.level == level).count()
}

fn level(finding: &CardFinding) -> &'static str {
    match finding.level {
        FindingLevel::Error => "error",
        FindingLevel::Warning => "warning",
    }
}

fn refuse(on: &Invocation<'_>, findings: &[CardFinding]) -> Result<(), CommandFailure> {
    let Some(first) = findings.first() else { return Ok(()) };
    let mut line = first.sentence();
    if findings.len() > 1 {
        line.push_str(&format!(", and {} more", findings.len() - 1));
    }
    let failure = CommandFailure::new(FailureCode::CardInvalid, line);
    Err(failure.hint(on.command("card lint", "")))
}

/// Shows a card and the outcome of its verification (the command line's specification, §10.1).
/// `is_valid`: the card was checked without errors.
fn show(
    on: &Invocation<'_>,
    card: &AgentCard,
    is_valid: bool,
    keys: &[CardKeys],
) -> Result<(), CommandFailure> {
    let outcome = verified(card, keys);
    let signature = match &outcome {
        SignatureOutcome::Unverifiable(why) if !keys.is_empty() => {
            let line = format!("the card's signatures are unverifiable: {why}");
            return Err(CommandFailure::new(FailureCode::CardInvalid, line));
        }
        SignatureOutcome::Unverifiable(_) => {
            let verify = on.command("card verify", "--jwks FILE");
            format!("unverifiable: no key was given; {verify}")
        }
        SignatureOutcome::Verified { .. } | SignatureOutcome::Absent => outcome.to_string(),
    };
    match on.format {
        // The command line's specification, §11.3: JSON output has the type of A2A 1.0. A card of
        // 1.0 is printed as received, so that its signatures stay valid.
        OutputFormat::Json => {
            match card.generation {
                Generation::V1 => on.print_json(card.raw_json().as_bytes()),
                Generation::V03 | Generation::V01 => on.print_json(card.to_v1_json().as_bytes()),
            }
            if is_valid {
                eprint("the card is valid\n");
            }
            // The printed card already shows a missing signature.
            if outcome != SignatureOutcome::Absent {
                eprint(&format!("Signature: {}\n", one_line(&signature)));
            }
        }
        OutputFormat::Text => {
            let mut output = on.text();
            text(&mut output, card);
            output.field("Signature", &signature);
            if is_valid {
                output.field("Schema", "valid");
            }
            print(&output.text);
        }
    }
    Ok(())
}

/// Writes a card as text.
fn text(output: &mut TextOutput, card: &AgentCard) {
    output.field("Name", &card.name);
    output.field("Description", &card.description);
    output.field("Version", &card.version);
    if let Some(provider) = &card.provider {
        output.field("Provider", format!("{} {}", provider.organization, provider.url).trim());
    }
    if let Some(url) = &card.documentation_url {
        output.field("Documentation", url);
    }
    for interface in &card.interfaces {
        let version = &interface.version_text;
        let mut line = format!("{} {} {version}", interface.binding_name, interface.url);
        if !interface.tenant.is_empty() {
            line.push_str(&format!(" tenant {}", interface.tenant));
        }
        output.field("Interface", &line);
    }
    let yes_or_no = |is: Option<bool>| match is {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not specified",
    };
    let capabilities = &card.capabilities;
    output.field("Streaming", yes_or_no(capabilities.streaming));
    output.field("Push notifications", yes_or_no(capabilities.push_notifications));
    output.field("Extended card", yes_or_no(capabilities.extended_agent_card));
    for extension in &capabilities.extensions {
        let required = if extension.required { " (required)" } else { "" };
        output.field("Extension", &format!("{}{required}", extension.uri));
    }
    for (name, scheme) in &card.security_schemes {
        output.field("Security scheme", &format!("{name}: {}", scheme_word(scheme)));
    }
    for skill in &card.skills {
        let tags = match skill.tags.is_empty() {
            true => String::new(),
            false => format!(" [{}]", skill.tags.join(", ")),
        };
        output.field("Skill", &format!("{}: {}{tags}", skill.id, skill.name));
        if output.is_verbose && !skill.description.is_empty() {
            output.field("Skill description", &skill.description);
        }
    }
    output.field("Signatures", &card.signatures.len().to_string());
}

fn scheme_word(scheme: &SecurityScheme) -> String {
    match scheme {
        SecurityScheme::ApiKey(key) => {
            let location = match key.location {
                ApiKeyLocation::Header => "header",
                ApiKeyLocation::Query => "query",
                ApiKeyLocation::Cookie => "cookie",
            };
            format!("API key in the {location} {}", key.name)
        }
        SecurityScheme::Http(http) => format!("HTTP {}", http.scheme),
        SecurityScheme::OAuth2(_) => "OAuth 2".to_owned(),
        SecurityScheme::OpenIdConnect(_) => "OpenID Connect".to_owned(),
        SecurityScheme::MutualTls(_) => "mutual TLS".to_owned(),
        SecurityScheme::Unknown(name) => name.clone(),
    }
}
