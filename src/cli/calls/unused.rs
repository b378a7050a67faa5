//! Warns about options that have no effect with this agent's card, in one line each on stderr.
//!
//! Invariant: the call is made in any case. A list of bindings in the environment or in a file is
//! for many agents, so a skipped binding is reported only if all listed bindings are skipped (the
//! command line's specification, §7.2).

use peregrine::client::{
    Client, Transport,
    card::{AgentCard, ChosenInterface, SecurityScheme},
    credentials::{CredentialPlan, Credentials, plan},
};

use super::{
    super::{
        failure::CommandFailure,
        settings::{SettingSource, Settings},
        warn,
    },
    Invocation,
    agent::CREDENTIALS,
};

/// Warns about options without effect on the command at `path`. `credentials`: the credentials of
/// the client.
///
/// # Errors
/// A [`CommandFailure`] of usage.
pub fn warn_of<T: Transport>(
    path: &str,
    settings: &Settings,
    client: &Client<T>,
    credentials: &Credentials,
) -> Result<(), CommandFailure> {
    let (card, interface) = (client.card(), client.interface());
    if path == "chat" && settings.is_on("async")? {
        warn("--async has no effect: chat waits for each answer");
    }
    if let Some(line) = transport_line(settings, &interface)? {
        warn(&line);
    }
    for line in credential_lines(settings, &card, &interface, credentials)? {
        warn(&line);
    }
    Ok(())
}

/// Warns of a `--tenant` that no request uses: a public card and a token belong to an agent.
pub fn warn_of_tenant(on: &Invocation<'_>) {
    let settings = &on.settings;
    let is_flag = *settings.source("tenant") == SettingSource::Flag;
    let why = match on.path {
        "conformance" if on.flag("tck").is_some() => "the TCK has no option for a tenant",
        "card get" if on.flags.get_flag("extended") => return,
        "card get" | "card lint" | "card verify" if is_flag => {
            "the card of a tenant, if there is one, has its own URL: -a https://HOST/tenants/NAME"
        }
        "auth login" if is_flag => "a token is for all tenants of the agent",
        _ => return,
    };
    if settings.text("tenant").is_some() {
        warn(&format!("{} has no effect: {why}", settings.label("tenant")));
    }
}

/// A warning about skipped bindings that the user preferred to the chosen one.
fn transport_line(
    settings: &Settings,
    interface: &ChosenInterface,
) -> Result<Option<String>, CommandFailure> {
    let wanted = settings.transports()?;
    let chosen = interface.binding.word();
    let passed: Vec<&str> = wanted.iter().copied().take_while(|word| *word != chosen).collect();
    let is_standing = *settings.source("transport") != SettingSource::Flag;
    if passed.is_empty() || (is_standing && passed.len() < wanted.len()) {
        return Ok(None);
    }
    let (label, passed) = (settings.label("transport"), passed.join(", "));
    Ok(Some(format!("{label}: the card has no {passed} that can be called here; {chosen} is used")))
}

/// Warnings about credentials that are not sent.
fn credential_lines(
    settings: &Settings,
    card: &AgentCard,
    interface: &ChosenInterface,
    credentials: &Credentials,
) -> Result<Vec<String>, CommandFailure> {
    let mut warnings = Vec::new();
    let plan = plan(card, credentials, &interface.url.origin, interface.is_card_origin);
    // If no credential may be sent, the call fails with the reason.
    let Ok(plan) = plan else { return Ok(warnings) };
    let own = settings.service_parameters()?;
    for name in CREDENTIALS.iter().copied() {
        let Some(value) = settings.text(name) else { continue };
        let field = credential_field(&plan, name, value);
        let own =
            field.and_then(|field| own.iter().find(|(own, _)| own.eq_ignore_ascii_case(field)));
        let why = match (field, own) {
            (Some(_), Some((own, _))) => format!("--svc-param {own} replaces it"),
            (Some(_), None) => continue,
            (None, _) if accepts(card, name) && !plan.is_empty() => {
                "another credential is sent, which the card accepts as well".to_owned()
            }
            (None, _) => "the card has no scheme for it".to_owned(),
        };
        warnings.push(format!("{} is not sent: {why}", settings.label(name)));
    }
    Ok(warnings)
}

/// The field that carries a credential, empty for the query; `None`: the credential is not sent.
fn credential_field<'p>(plan: &'p CredentialPlan, name: &str, value: &str) -> Option<&'p str> {
    let mut fields = plan.fields().iter();
    let found = match name {
        "bearer" => fields.find(|(_, field)| field.strip_prefix("Bearer ") == Some(value.trim())),
        "basic" => fields.find(|(_, field)| field.starts_with("Basic ")),
        "api-key" => {
            let is_key = |(name, field): &(&str, &str)| *name == "Cookie" || *field == value.trim();
            let mut target = String::new();
            plan.add_query(&mut target);
            return match fields.find(is_key) {
                Some((name, _)) => Some(name),
                None => (!target.is_empty()).then_some(""),
            };
        }
        _ => return plan.needs_token().then_some("Authorization"),
    };
    found.map(|(name, _)| name)
}

/// Whether a card has a scheme that takes a credential. A card without schemes takes credentials
/// that have a single position.
pub fn accepts(card: &AgentCard, name: &str) -> bool {
    const TOKENS: &[&str] = &["bearer", "client-secret"];
    let mut schemes = card.security_schemes.values().map(|scheme| match scheme {
        SecurityScheme::ApiKey(_) => &["api-key"][..],
        SecurityScheme::Http(http) if http.scheme.eq_ignore_ascii_case("basic") => &["basic"],
        SecurityScheme::Http(http) if http.scheme.eq_ignore_ascii_case("bearer") => TOKENS,
        SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => TOKENS,
        SecurityScheme::Unknown(kind) if kind != "apiKey" => TOKENS,
        SecurityScheme::Http(_) | SecurityScheme::Unknown(_) | SecurityScheme::MutualTls(_) => &[],
    });
    match card.security_schemes.is_empty() {
        true => name != "api-key",
        false => schemes.any(|names| names.contains(&name)),
    }
}
