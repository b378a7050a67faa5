//! Rules beyond types: URLs that can be called, versions, media types, distinct skills.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{binding::interfaces::Binding, dialect::version::ProtocolVersion};

use super::{
    super::{
        super::{HttpOrigin, HttpUrl},
        CardInterface, WELL_KNOWN, binding_of,
        interface::version_of,
    },
    Findings, LintForm,
    check::path,
};

pub(super) fn all(
    card: &Map<String, Value>,
    form: LintForm,
    card_url: Option<&HttpUrl>,
    findings: &mut Findings,
) {
    if card_url.is_some_and(|url| url.path == WELL_KNOWN[1]) && form != LintForm::V01 {
        let message =
            format!("the card was served at {}; clients request {}", WELL_KNOWN[1], WELL_KNOWN[0]);
        findings.warn("", "A2A 0.3 §5.3", message);
    }
    if form.is_v1() {
        interfaces_v1(card, card_url, findings);
    }
    if form.is_v0() {
        interfaces_v0(card, form, card_url, findings);
    }
    modes("", card, ["defaultInputModes", "defaultOutputModes"], form, findings);
    skills(card, form, findings);
    let clause = if form.is_v1() { "A2A 1.0 §4.4.1" } else { "A2A 0.3 §5.5" };
    let mut links = vec![("documentationUrl".to_owned(), card.get("documentationUrl"))];
    links.push(("iconUrl".to_owned(), card.get("iconUrl")));
    links.push(("provider.url".to_owned(), card.get("provider").and_then(|one| one.get("url"))));
    for (member, value) in links {
        let text = value.and_then(Value::as_str).filter(|text| !text.is_empty());
        if text.is_some_and(|text| HttpOrigin::parse(text).is_err()) {
            findings.warn(&member, clause, "must be an absolute URL of http or https");
        }
    }
}

fn text<'v>(members: &'v Map<String, Value>, name: &str) -> Option<&'v str> {
    members.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
}

fn entries<'v>(
    members: &'v Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (String, &'v Map<String, Value>)> {
    let list = members.get(name).and_then(Value::as_array).into_iter().flatten().enumerate();
    let path = name.to_owned();
    list.filter_map(move |(index, value)| Some((format!("{path}[{index}]"), value.as_object()?)))
}

const V1_INTERFACE: &str = "A2A 1.0 §4.4.6";

fn interfaces_v1(card: &Map<String, Value>, card_url: Option<&HttpUrl>, findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (at, one) in entries(card, "supportedInterfaces") {
        let field = |name: &str| text(one, name).unwrap_or_default();
        let (url, binding, version) =
            (field("url"), field("protocolBinding"), field("protocolVersion"));
        if !seen.insert((url, binding, version, field("tenant"))) {
            findings.warn(&at, V1_INTERFACE, "listed twice");
        }
        if !version.is_empty() {
            let member = path(&at, "protocolVersion");
            match ProtocolVersion::parse(version) {
                None if version_of(version).is_some() => {
                    let message = format!("{version:?} should be Major.Minor, such as \"1.0\"");
                    findings.warn(&member, "A2A 1.0 §3.6", message);
                }
                None => findings.error(&member, "A2A 1.0 §3.6", "not a version"),
                // A2A 1.0 §3.6: patch numbers are not used.
                Some(_) if version.split('.').count() > 2 => {
                    findings.warn(
                        &member,
                        "A2A 1.0 §3.6",
                        "the version has a patch number; use Major.Minor",
                    );
                }
                Some(_) => {}
            }
        }
        let members = InterfaceMembers {
            url: path(&at, "url"),
            url_clause: V1_INTERFACE,
            binding: path(&at, "protocolBinding"),
            binding_clause: "A2A 1.0 §5.8",
        };
        interface(url, binding, &members, card_url, findings);
    }
}

fn interfaces_v0(
    card: &Map<String, Value>,
    form: LintForm,
    card_url: Option<&HttpUrl>,
    findings: &mut Findings,
) {
    let clause = if form == LintForm::V01 { "A2A 0.1, AgentCard" } else { "A2A 0.3 §5.5" };
    let url = text(card, "url").unwrap_or_default();
    let preferred = text(card, "preferredTransport");
    if form == LintForm::V03 {
        if preferred.is_none() && card.get("preferredTransport").is_none() {
            let message = "missing: clients assume that the URL is for JSONRPC";
            findings.warn("preferredTransport", "A2A 0.3 §5.6.1", message);
        }
        match text(card, "protocolVersion") {
            None => {
                findings.warn("protocolVersion", clause, "the card does not declare its version")
            }
            Some(version) if ProtocolVersion::parse(version).is_none() => {
                findings.error("protocolVersion", clause, "not a version");
            }
            Some(_) => {}
        }
    }
    let binding = preferred.unwrap_or("JSONRPC");
    let members = InterfaceMembers {
        url: "url".to_owned(),
        url_clause: clause,
        binding: "preferredTransport".to_owned(),
        binding_clause: "A2A 0.3 §5.6.1",
    };
    interface(url, binding, &members, card_url, findings);
    let more: Vec<_> = entries(card, "additionalInterfaces").collect();
    let transport =
        |one: &Map<String, Value>| text(one, "transport").unwrap_or_default().to_owned();
    let of_url = || more.iter().filter(|(_, one)| text(one, "url") == Some(url));
    if !url.is_empty() && !more.is_empty() {
        // A2A 0.3 §5.6.3: two statements about one URL must agree.
        match of_url().find(|(_, one)| !transport(one).is_empty()) {
            None => {
                let message = "should list the main url as well";
                findings.warn("additionalInterfaces", "A2A 0.3 §5.5.5", message);
            }
            Some(_) if of_url().any(|(_, one)| transport(one).eq_ignore_ascii_case(binding)) => {}
            Some((at, one)) => {
                let message = format!("{at} has the same url, but transport {}", transport(one));
                findings.error("preferredTransport", "A2A 0.3 §5.6.3", message);
            }
        }
    }
    for (at, one) in &more {
        let members = InterfaceMembers {
            url: path(at, "url"),
            url_clause: "A2A 0.3 §5.5.5",
            binding: path(at, "transport"),
            binding_clause: "A2A 0.3 §5.6.1",
        };
        let url = text(one, "url").unwrap_or_default();
        interface(url, &transport(one), &members, card_url, findings);
    }
}

/// The paths of an interface's members, and the clauses that define them.
struct InterfaceMembers {
    url: String,
    url_clause: &'static str,
    binding: String,
    binding_clause: &'static str,
}

/// Checks the URL and the binding of one interface.
fn interface(
    url: &str,
    binding: &str,
    members: &InterfaceMembers,
    card_url: Option<&HttpUrl>,
    findings: &mut Findings,
) {
    let InterfaceMembers { url: url_member, binding: binding_member, .. } = members;
    let parsed = binding_of(binding);
    if !binding.is_empty() && !Binding::ALL.iter().any(|one| one.name() == binding) {
        match parsed {
            Some(parsed) if !binding.contains("://") => {
                let message = format!("{binding:?} should be {:?}", parsed.name());
                findings.error(binding_member, members.binding_clause, message);
            }
            // A2A 1.0 §5.8: custom bindings are named by URIs.
            None if !binding.contains(':') => {
                let message = format!("{binding:?} must be JSONRPC, GRPC, HTTP+JSON or a URI");
                findings.error(binding_member, members.binding_clause, message);
            }
            Some(_) | None => {}
        }
    }
    if url.is_empty() {
        return;
    }
    let clause = members.url_clause;
    if parsed == Some(Binding::Grpc) && url.contains("://") {
        let message = "gRPC needs host:port, without a scheme";
        findings.warn(url_member, clause, message);
    }
    let interface = CardInterface {
        url: url.to_owned(),
        binding_name: binding.to_owned(),
        ..CardInterface::default()
    };
    let target = match (parsed, interface.target(card_url)) {
        (_, Ok(target)) => target,
        // An unknown binding may have its own form of URLs.
        (None, Err(_)) => return,
        (Some(_), Err(error)) => {
            return findings.error(url_member, clause, problem(&error));
        }
    };
    if parsed != Some(Binding::Grpc) && interface.target(None).is_err() {
        let message = "a relative URL: clients that do not resolve it against the card's URL fail";
        findings.warn(url_member, clause, message);
    }
    if let Some(operation) = parsed.and_then(|binding| operation_of(&target, binding)) {
        let message = format!(
            "its path ends with {operation}, the name of an operation: clients append such paths \
             to the url"
        );
        findings.warn(url_member, clause, message);
    }
    let origin = &target.origin;
    if !origin.is_secure() && !origin.is_loopback() {
        let message = "does not use TLS and is not on this machine";
        findings.warn(url_member, "A2A 1.0 §7.1", message);
    }
    if matches!(origin.host_name(), "0.0.0.0" | "::") {
        findings.warn(url_member, clause, "no client can call the address 0.0.0.0 or ::");
    } else if origin.is_loopback() && card_url.is_some_and(|card| !card.origin.is_loopback()) {
        findings.warn(url_member, clause, "is this machine, but the card came from another host");
    }
    let is_ws = ["ws://", "wss://"].iter().any(|scheme| url.starts_with(scheme));
    if parsed.is_some() && is_ws != (parsed == Some(Binding::WebSocket)) {
        findings.warn(url_member, clause, format!("the scheme does not fit {binding}"));
    }
}

/// The end of a path, if it names one operation instead of an interface (A2A 1.0 §11.3).
fn operation_of(url: &HttpUrl, binding: Binding) -> Option<&'static str> {
    const OPERATIONS: [&str; 6] = [
        "/message:send",
        "/message:stream",
        "/message/send",
        "/message/stream",
        "/tasks",
        "/extendedAgentCard",
    ];
    let path = url.path.split('?').next().unwrap_or_default().trim_end_matches('/');
    let is_rest = binding == Binding::HttpJson;
    let mut found = OPERATIONS.into_iter().filter(|end| is_rest || end.starts_with("/message"));
    let well_known = WELL_KNOWN.into_iter().find(|end| path.ends_with(end));
    found.find(|end| path.ends_with(end)).or(well_known)
}

fn problem(error: &super::super::CardError) -> String {
    let super::super::CardProblem::Url(why) = &error.problem else { return error.to_string() };
    format!("cannot be called: {why}")
}

fn skills(card: &Map<String, Value>, form: LintForm, findings: &mut Findings) {
    let clause = if form.is_v1() { "A2A 1.0 §4.4.5" } else { "A2A 0.3 §5.5.4" };
    let mut seen = BTreeSet::new();
    for (at, skill) in entries(card, "skills") {
        if let Some(id) = text(skill, "id")
            && !seen.insert(id)
        {
            findings.error(
                &path(&at, "id"),
                clause,
                format!("another skill also has the id {id:?}"),
            );
        }
        modes(&at, skill, ["inputModes", "outputModes"], form, findings);
    }
}

fn modes(
    base: &str,
    members: &Map<String, Value>,
    names: [&str; 2],
    form: LintForm,
    findings: &mut Findings,
) {
    let clause = if form.is_v1() { "A2A 1.0 §4.4.1" } else { "A2A 0.3 §5.5" };
    for name in names {
        let list = members.get(name).and_then(Value::as_array).into_iter().flatten();
        for (index, value) in list.enumerate() {
            let Some(mode) = value.as_str() else { continue };
            if !is_media_type(mode) {
                let member = format!("{}[{index}]", path(base, name));
                findings.warn(&member, clause, format!("{mode:?} is not a media type"));
            }
        }
    }
}

/// A media type (RFC 9110 §8.3.1) or a range (RFC 9110 §12.5.1), with any parameters.
fn is_media_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim();
    let is_token = |part: &str| {
        let is_tchar = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        !part.is_empty() && part.bytes().all(is_tchar)
    };
    essence.split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub))
}
