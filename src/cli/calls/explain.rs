//! Describes a failed call as the command line's specification requires (§11.4).
//!
//! Invariant: an error that A2A names has that name in every binding; an error without a name is
//! named by its status and the operation. No secret of the user is shown, even if the server
//! repeats it. A hint is an action; without an action the hint is omitted.

mod transport;

use std::path::PathBuf;

use peregrine::{
    client::{
        ClientError, ClientErrorKind,
        card::{CardProblem, SecurityScheme},
        credentials::CredentialsError,
        redirect::RedirectError,
    },
    fault::{FaultKind, PeerFault},
    model::Generation,
};
use serde_json::Value;

use super::{
    super::{
        failure::{CommandFailure, FailureCode},
        reference::CardReference,
    },
    Invocation,
    agent::CREDENTIALS,
    invocation::{flag, last_word, quoted},
    login,
};
use transport::{transport_code, transport_hint};

/// The hint to the protocol trace.
pub const DEBUG: &str = "see the agent's response with --debug";

/// The command that shows the card, if the agent has one.
fn shows_card(on: &Invocation<'_>) -> Option<String> {
    on.settings.text("endpoint").is_none().then(|| on.command("card get", ""))
}

/// The failure of a call.
pub fn failure(on: &Invocation<'_>, error: ClientError) -> CommandFailure {
    let (code, hint) = code_and_hint(on, &error);
    // A server may repeat parts of the request.
    let redaction = on.settings.redaction();
    let a2a_code = error.fault().and_then(|fault| {
        let code = fault.code.map(Value::from);
        let status = fault.status.as_deref().map(|text| redaction.without_secrets(text));
        code.or(status.map(Value::from)).or(fault.http.map(Value::from))
    });
    let a2a_code = a2a_code.or(match error.kind {
        ClientErrorKind::NotA2a(status) | ClientErrorKind::NoCard(status) => Some(status.into()),
        _ => None,
    });
    let line = redaction.without_secrets(&message(on, &error));
    let mut failure = CommandFailure::new(code, line);
    (failure.hint, failure.a2a_code) = (hint, a2a_code);
    failure
}

/// The sentence of an error. It does not repeat the error code, and it describes a cure as an
/// option of the command line.
fn message(on: &Invocation<'_>, error: &ClientError) -> String {
    match &error.kind {
        ClientErrorKind::Fault(fault) => fault_text(fault),
        ClientErrorKind::BelowFloor { newest, floor } => format!(
            "the agent speaks A2A {newest}; versions below {floor} must be requested: \
             --a2a-version {newest}"
        ),
        // Errors of a card in a file name the file, since there may be several; other cards need no
        // name.
        ClientErrorKind::Card(_) if on.card().is_none() => match card_file(on) {
            Some(path) => format!("{}: {}", path.display(), error.detail),
            None => error.detail.clone(),
        },
        _ => error.detail.clone(),
    }
}

/// The file of the card, if it is a file.
fn card_file(on: &Invocation<'_>) -> Option<PathBuf> {
    match reference(on)? {
        CardReference::File(path) => Some(path),
        CardReference::Origin(_) | CardReference::Url(_) => None,
    }
}

fn reference(on: &Invocation<'_>) -> Option<CardReference> {
    CardReference::parse(on.settings.text("agent-card")?).ok()
}

fn fault_text(fault: &PeerFault) -> String {
    let mut text = fault.message.trim();
    // gRPC of 0.3 begins the message with the name (wire §2.3), and some servers repeat it.
    while let Some(rest) = fault.name.and_then(|name| text.strip_prefix(name.0)) {
        let Some(rest) = rest.strip_prefix(':') else { break };
        text = rest.trim_start();
    }
    match (text, fault.http, &fault.status) {
        ("", Some(http), _) => format!("the agent gave no details: HTTP status {http}"),
        ("", None, Some(status)) => format!("the agent gave no details: {status}"),
        ("", None, None) => "the agent gave no details".to_owned(),
        (text, _, _) => text.to_owned(),
    }
}

fn code_and_hint(on: &Invocation<'_>, error: &ClientError) -> (FailureCode, Option<String>) {
    let has_credentials = CREDENTIALS.iter().any(|name| on.settings.text(name).is_some());
    match &error.kind {
        ClientErrorKind::Url(_) | ClientErrorKind::InvalidField => (FailureCode::Usage, None),
        ClientErrorKind::Transport(error) => (transport_code(on, error), transport_hint(on, error)),
        ClientErrorKind::NoCard(500..) => (FailureCode::CardNotFound, None),
        ClientErrorKind::NoCard(_) => {
            let hint = match reference(on) {
                Some(CardReference::Url(_)) => {
                    "check the name of the agent or tenant; a full URL of a card also works"
                }
                _ => "check the agent's URL and its path; a full URL of a card also works",
            };
            (FailureCode::CardNotFound, Some(hint.to_owned()))
        }
        ClientErrorKind::Card(error) => {
            let hint = match error.problem {
                CardProblem::NotJson(_) => None,
                _ => Some(on.command("card lint", "")),
            };
            (FailureCode::CardInvalid, hint)
        }
        ClientErrorKind::CardSignature(_) => (FailureCode::CardInvalid, None),
        // The command line's specification, §13.2: an unavailable version is reported by name.
        ClientErrorKind::NoInterface if on.settings.text("a2a-version").is_some() => {
            (named(FaultKind::VersionNotSupported), shows_card(on))
        }
        ClientErrorKind::NoInterface => {
            let lint = shows_card(on).map(|_| on.command("card lint", ""));
            (FailureCode::CardInvalid, lint)
        }
        ClientErrorKind::NoTenant => {
            let tenant = on.settings.text("tenant").unwrap_or("NAME");
            let agent = match reference(on) {
                Some(CardReference::Origin(url) | CardReference::Url(url)) => url,
                Some(CardReference::File(_)) | None => "https://HOST".to_owned(),
            };
            let url = format!("{}/tenants/{tenant}", agent.trim_end_matches('/'));
            let hint = format!(
                "--a2a-version 1.0, if the agent supports it; or the URL of the tenant, if there \
                 is one: -a {}",
                quoted(&url)
            );
            (FailureCode::Usage, Some(hint))
        }
        ClientErrorKind::BelowFloor { newest, .. } => {
            let hint = format!("--a2a-version {newest}, or A2ACLI_A2A_VERSION={newest}");
            (named(FaultKind::VersionNotSupported), Some(hint))
        }
        ClientErrorKind::NotDeclared(what) if what.contains("push") => {
            let hint = "--assume push, if the agent sends them anyway".to_owned();
            (named(FaultKind::PushNotificationNotSupported), Some(hint))
        }
        ClientErrorKind::NotDeclared(_) if on.path == "task subscribe" => {
            let id = on.words.first().map(String::as_str).unwrap_or_default();
            let hint = on.command("task get", &format!("--wait {}", last_word(id)));
            (named(FaultKind::UnsupportedOperation), Some(hint))
        }
        ClientErrorKind::NotExpressible(_) if on.path == "task list" => {
            // Wire §3: before 1.0 JSON-RPC has no method to list tasks, and HTTP+JSON has a path.
            // 0.1 has no HTTP+JSON.
            let is_v01 = on.card().is_some_and(|card| card.generation == Generation::V01);
            let hint = "--transport http+json, if the agent has it";
            (named(FaultKind::UnsupportedOperation), (!is_v01).then(|| hint.to_owned()))
        }
        ClientErrorKind::NotDeclared(_) | ClientErrorKind::NotExpressible(_) => {
            (named(FaultKind::UnsupportedOperation), None)
        }
        ClientErrorKind::Credentials(why) => credentials_code(on, why),
        ClientErrorKind::Unauthorized if on.card().is_none() => {
            const HINT: &str = "no credential is sent to fetch a card; fetch it by other means, \
                                and use -a ./card.json";
            (FailureCode::CredentialsMissing, Some(HINT.to_owned()))
        }
        ClientErrorKind::Unauthorized if !has_credentials => {
            (FailureCode::CredentialsMissing, Some(credentials_hint(on)))
        }
        ClientErrorKind::Unauthorized => (FailureCode::AuthFailed, Some(credentials_hint(on))),
        ClientErrorKind::Forbidden => (FailureCode::AuthFailed, Some(forbidden_hint(on))),
        ClientErrorKind::Fault(fault) => fault_code(on, fault, has_credentials),
        ClientErrorKind::NotA2a(status) => {
            let kind = of_status(on, *status).unwrap_or(FaultKind::InvalidAgentResponse);
            (named(kind), fault_hint(on, Some(kind)))
        }
        ClientErrorKind::Unreadable(_) | ClientErrorKind::OtherTask => {
            let kind = FaultKind::InvalidAgentResponse;
            (named(kind), fault_hint(on, Some(kind)))
        }
        ClientErrorKind::Redirect(RedirectError::Call { to, .. }) => {
            let is_url = ["http://", "https://"].iter().any(|scheme| to.starts_with(scheme));
            let hint = format!("if the agent has moved there: -a {}", quoted(to));
            (FailureCode::Unreachable, is_url.then_some(hint))
        }
        ClientErrorKind::Redirect(_) => (FailureCode::CardNotFound, None),
        ClientErrorKind::StreamLost => (named(FaultKind::InvalidAgentResponse), cut_hint(on)),
    }
}

/// The name in A2A 1.0 (§3.3.2, and §9.5 for errors of JSON-RPC). Two errors of 0.1 share one name
/// in 1.0; 1.0 has no names for temporary errors.
fn named(kind: FaultKind) -> FailureCode {
    match kind {
        FaultKind::StreamingNotSupported | FaultKind::TaskTerminal => {
            named(FaultKind::UnsupportedOperation)
        }
        FaultKind::Overloaded | FaultKind::RateLimited => FailureCode::Overloaded,
        FaultKind::ShuttingDown => FailureCode::Unavailable,
        FaultKind::Unauthenticated | FaultKind::PermissionDenied => FailureCode::AuthFailed,
        FaultKind::Parse
        | FaultKind::InvalidRequest
        | FaultKind::MethodNotFound
        | FaultKind::InvalidParams
        | FaultKind::IdempotencyConflict
        | FaultKind::Internal
        | FaultKind::TaskNotFound
        | FaultKind::TaskNotCancelable
        | FaultKind::PushNotificationNotSupported
        | FaultKind::UnsupportedOperation
        | FaultKind::ContentTypeNotSupported
        | FaultKind::InvalidAgentResponse
        | FaultKind::ExtendedAgentCardNotConfigured
        | FaultKind::ExtensionSupportRequired
        | FaultKind::DeadlineExceeded
        | FaultKind::LoopDetected
        | FaultKind::VersionNotSupported => FailureCode::Protocol(kind.error_name().to_owned()),
    }
}

/// The code and the hint for an error of the agent.
fn fault_code(
    on: &Invocation<'_>,
    fault: &PeerFault,
    has_credentials: bool,
) -> (FailureCode, Option<String>) {
    // Two errors of 0.1 for which 1.0 uses the status of the transport.
    match fault.name.map(|name| name.0) {
        Some("AuthenticationRequiredError") if !has_credentials => {
            return (FailureCode::CredentialsMissing, Some(credentials_hint(on)));
        }
        Some("AuthenticationRequiredError") => {
            return (FailureCode::AuthFailed, Some(credentials_hint(on)));
        }
        Some("AuthorizationFailedError") => {
            return (FailureCode::AuthFailed, Some(forbidden_hint(on)));
        }
        Some(_) | None => {}
    }
    let kind = fault.kind.or_else(|| of_nameless(on, fault));
    (named(kind.unwrap_or(FaultKind::Internal)), fault_hint(on, kind))
}

/// The meaning of a fault without a name and a code (wire §2.3), from its HTTP or gRPC status and
/// the operation.
fn of_nameless(on: &Invocation<'_>, fault: &PeerFault) -> Option<FaultKind> {
    let status = match fault.status.as_deref() {
        _ if fault.code.is_some() => return None,
        Some("NOT_FOUND") => 404,
        Some("FAILED_PRECONDITION" | "ABORTED") => 409,
        Some("INVALID_ARGUMENT" | "OUT_OF_RANGE") => 400,
        Some("UNIMPLEMENTED") => 501,
        Some("RESOURCE_EXHAUSTED") => 429,
        Some("UNAVAILABLE") => 503,
        Some(_) | None => fault.http?,
    };
    of_status(on, status)
}

/// The meaning of a bare status for the command; `None`: A2A has no name for this status.
fn of_status(on: &Invocation<'_>, status: u16) -> Option<FaultKind> {
    let is_push = on.path.starts_with("task push-config");
    let is_about_task = match on.path {
        "task list" => false,
        "send" | "chat" => on.settings.text("task-id").is_some(),
        path => path.starts_with("task "),
    };
    Some(match status {
        404 | 410 if is_about_task => FaultKind::TaskNotFound,
        404 | 405 => FaultKind::MethodNotFound,
        409 if is_push => FaultKind::PushNotificationNotSupported,
        409 if on.path == "task cancel" => FaultKind::TaskNotCancelable,
        409 => FaultKind::UnsupportedOperation,
        501 if is_push => FaultKind::PushNotificationNotSupported,
        501 => FaultKind::UnsupportedOperation,
        400 | 422 => FaultKind::InvalidParams,
        415 => FaultKind::ContentTypeNotSupported,
        429 => FaultKind::Overloaded,
        503 => FaultKind::ShuttingDown,
        _ => return None,
    })
}

/// The hint for a missing or incomplete answer, which some servers also use to reject a task.
fn cut_hint(on: &Invocation<'_>) -> Option<String> {
    let is_applicable = names_task(on) && on.card().is_some();
    is_applicable.then(|| format!("no new task was requested; {DEBUG}"))
}

/// Whether the command sends a message to a task that the user named.
fn names_task(on: &Invocation<'_>) -> bool {
    matches!(on.path, "send" | "chat") && on.settings.text("task-id").is_some()
}

fn credentials_code(
    on: &Invocation<'_>,
    error: &CredentialsError,
) -> (FailureCode, Option<String>) {
    let missing = |hint: String| (FailureCode::CredentialsMissing, Some(hint));
    match error {
        CredentialsError::Missing(_) => missing(credentials_hint(on)),
        CredentialsError::PlainHttp(_) => {
            missing("--allow-http-credentials, if this is intended".into())
        }
        CredentialsError::OtherOrigin(_) => {
            missing("--allow-other-origin, if this is intended".into())
        }
        CredentialsError::OAuth(error) => (login::code(error), None),
        CredentialsError::Place(_) | CredentialsError::Value(_) | CredentialsError::WebSocket => {
            (FailureCode::AuthFailed, None)
        }
    }
}

/// The hint for a forbidden call: with a tenant, the credentials are valid for other tenants.
fn forbidden_hint(on: &Invocation<'_>) -> String {
    match on.settings.text("tenant") {
        Some(_) => "try another --tenant".to_owned(),
        None => credentials_hint(on),
    }
}

/// The credentials that the card accepts, or all kinds if it declares none.
fn credentials_hint(on: &Invocation<'_>) -> String {
    let card = on.card();
    let schemes = card.iter().flat_map(|card| card.security_schemes.values());
    let mut ways: Vec<String> = Vec::new();
    for scheme in schemes {
        let way = match scheme {
            SecurityScheme::ApiKey(_) => "give a key with --api-key or A2ACLI_API_KEY".to_owned(),
            SecurityScheme::Http(http) if http.scheme.eq_ignore_ascii_case("basic") => {
                "give a name and a password with --basic or A2ACLI_BASIC".to_owned()
            }
            SecurityScheme::Http(_) | SecurityScheme::OpenIdConnect(_) => {
                "give a token with --bearer or A2ACLI_BEARER".to_owned()
            }
            SecurityScheme::OAuth2(_) => format!("run {}", on.command("auth login", "")),
            SecurityScheme::MutualTls(_) => {
                "give a certificate with --cert FILE --key FILE".to_owned()
            }
            SecurityScheme::Unknown(_) => continue,
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    match ways.is_empty() {
        // Without a scheme the field of a key is unknown.
        true => "give a token with A2ACLI_BEARER, a password with A2ACLI_BASIC, or a key with \
             --svc-param NAME:KEY; or run peregrine auth login"
            .to_owned(),
        false => ways.join(", or "),
    }
}

/// The hint for an error of the agent. The command line's specification, §8.1: if the user named
/// the task, the hint points to the protocol.
fn fault_hint(on: &Invocation<'_>, kind: Option<FaultKind>) -> Option<String> {
    if names_task(on) {
        return Some(format!("no new task was created; {DEBUG}"));
    }
    let shows_task = || {
        let task = on.words.first().filter(|_| on.path.starts_with("task "));
        task.map(|id| on.command("task get", &last_word(id)))
    };
    let tenant = on.settings.text("tenant");
    match kind {
        Some(FaultKind::InvalidParams) if tenant.is_some() => {
            Some(format!("try another --tenant; {DEBUG}"))
        }
        Some(FaultKind::TaskNotFound)
            if matches!(on.path, "task push-config get" | "task push-config delete") =>
        {
            let task = on.words.first()?;
            Some(on.command("task push-config list", &last_word(task)))
        }
        Some(FaultKind::TaskNotFound) => Some(on.command("task list", "")),
        Some(FaultKind::TaskNotCancelable | FaultKind::TaskTerminal) => shows_task(),
        Some(FaultKind::UnsupportedOperation) if on.path == "task subscribe" => shows_task(),
        Some(FaultKind::MethodNotFound) if on.path == "task subscribe" => {
            let task = on.words.first()?;
            Some(on.command("task get", &format!("--wait {}", last_word(task))))
        }
        Some(FaultKind::VersionNotSupported) => Some(
            "request a version that the agent has: --a2a-version, or A2ACLI_A2A_VERSION".into(),
        ),
        Some(FaultKind::ExtensionSupportRequired) => Some(extension_hint(on)),
        Some(FaultKind::ContentTypeNotSupported | FaultKind::MethodNotFound) => shows_card(on),
        Some(
            FaultKind::PushNotificationNotSupported
            | FaultKind::StreamingNotSupported
            | FaultKind::ExtendedAgentCardNotConfigured
            | FaultKind::Overloaded
            | FaultKind::RateLimited
            | FaultKind::ShuttingDown
            | FaultKind::DeadlineExceeded
            | FaultKind::LoopDetected,
        ) => None,
        Some(FaultKind::Unauthenticated) => Some(credentials_hint(on)),
        Some(FaultKind::PermissionDenied) => Some(forbidden_hint(on)),
        Some(
            FaultKind::Parse
            | FaultKind::InvalidRequest
            | FaultKind::InvalidParams
            | FaultKind::IdempotencyConflict
            | FaultKind::Internal
            | FaultKind::UnsupportedOperation
            | FaultKind::InvalidAgentResponse,
        )
        | None => Some(DEBUG.to_owned()),
    }
}

fn extension_hint(on: &Invocation<'_>) -> String {
    let card = on.card();
    let required = card.iter().flat_map(|card| card.required_extensions());
    let flags: Vec<String> = required.map(|uri| flag("extension", uri)).collect();
    match flags.is_empty() {
        true => "declare the extension that the agent requires: --extension URI".to_owned(),
        false => flags.join(" "),
    }
}
