//! Authentication and authorization: each kind of credential, in each of its states, at each
//! endpoint.
//!
//! The rules of refusals are in `docs/guide/callers.md`; their forms are those of wire §2, and
//! those of dialects that differ.

use serde_json::{Value, json};

use super::{
    client::{By, Call, Fault, Filter, Op},
    credentials::{Credential, Guarded, Kind},
    errors::assert_fault,
    exchange::{Approach, name_tenant},
    jsonrpc::response,
    message_spec::text_spec,
    model::{Gen, V01, V1, V03},
    place::Endpoint,
    server::Server,
    variants::{Binding, Carrier, OBSERVER, Speaker, VARIANTS, Variant},
    ws::Ws,
};
use crate::support::reply::Reply;

/// An endpoint: a dialect and a pair.
#[derive(Clone, Copy, Debug)]
pub struct Door {
    pub dialect: &'static str,
    pub variant: Variant,
}

/// How a dialect refuses, where it differs from the standard.
struct Refusal {
    dialect: &'static str,
    /// The codes of 401 and 403.
    codes: [i64; 2],
    /// Its fixed message; the text is then in `data.details`.
    message: Option<[&'static str; 2]>,
}

#[rustfmt::skip]
const REFUSALS: &[Refusal] = &[
    Refusal { dialect: "langsmith", codes: [-32000, -32000], message: None },
    // Wire §8: -32000 "Agent error" for every error outside JSON-RPC.
    Refusal { dialect: "evo_ai", codes: [-32000, -32000], message: Some(["Agent error", "Agent error"]) },
    // Wire §2.2: AuthenticationRequired and AuthorizationFailed of 0.1.
    Refusal { dialect: "rabbithole", codes: [-32007, -32008], message: None },
    // It has its own messages; other errors have the standard text.
    Refusal { dialect: "fasta2a", codes: [-32000, -32000], message: Some(["Authentication is required", "This is not allowed"]) },
    Refusal { dialect: "tutorial", codes: [-32000, -32000], message: None },
];

pub const fn door(
    dialect: &'static str,
    binding: Binding,
    generation: Gen,
    carrier: Carrier,
) -> Door {
    let variant = Variant { binding, generation, carrier, speaker: Speaker::Hand };
    Door { dialect, variant }
}

/// Every pair of the standard, and every endpoint of the other dialects.
pub fn doors() -> Vec<Door> {
    use Binding::{Grpc, JsonRpc, Rest, WebSocket};
    let standard = VARIANTS.iter().map(|variant| Door { dialect: "", variant: *variant });
    let mut all: Vec<Door> = standard.collect();
    for carrier in [Carrier::Http1, Carrier::Http2] {
        for (dialect, generation) in [
            ("langsmith", V03),
            ("evo_ai", V03),
            ("rabbithole", V01),
            ("a2a_rust", V1),
            ("tutorial", V03),
            ("fasta2a", V03),
        ] {
            all.push(door(dialect, JsonRpc, generation, carrier));
        }
        all.push(door("a2a_rust", Rest, V1, carrier));
    }
    for (dialect, generation) in
        [("rabbithole", V01), ("evo_ai", V03), ("langsmith", V03), ("a2a_rust", V1)]
    {
        all.push(door(dialect, WebSocket, generation, Carrier::Http1));
    }
    all.push(door("a2a_rust", Grpc, V1, Carrier::Http2));
    all
}

/// The result of a call.
pub struct Attempt {
    pub answer: Result<Value, Fault>,
    pub reply: Reply,
}

impl Door {
    /// The path and fields of a client at this endpoint.
    pub fn approach(self, approach: &Approach) -> Approach {
        let is_grpc = self.variant.binding == Binding::Grpc;
        let path = match self.dialect {
            "" => String::new(),
            // gRPC has no path for a dialect.
            _ if is_grpc => String::new(),
            name => format!("/{name}"),
        };
        let has_json_messages = is_grpc && self.dialect == "a2a_rust";
        let mut approach = Approach { path, has_json_messages, ..approach.again() };
        if self.dialect == "langsmith" {
            approach.fields.push(("Accept", "application/json".to_owned()));
        }
        approach
    }

    /// The pair that decides the form of errors for an anonymous caller without a version.
    pub fn variant_of_anonymous_refusal(self) -> Variant {
        let Variant { generation, binding, .. } = self.variant;
        let is_rpc = self.variant.is_rpc();
        let generation = if is_rpc && self.dialect.is_empty() { V1 } else { generation };
        // The upgrade of a WebSocket is an HTTP request.
        let binding = if is_rpc { Binding::JsonRpc } else { binding };
        Variant { generation, binding, ..self.variant }
    }

    /// The params of a send.
    pub fn params(self, context: &str) -> Value {
        let form = self.variant.form();
        let mut params = form.send_params(&text_spec("done").within(context));
        if matches!(self.dialect, "langsmith" | "evo_ai") {
            params["configuration"].take();
            params["contextId"] = json!(context);
        }
        params
    }

    /// Makes a call, in a tenant if `tenant` is not empty.
    pub fn call(
        self,
        endpoint: &Endpoint,
        approach: &Approach,
        mut call: Call,
        tenant: &str,
    ) -> Attempt {
        let variant = self.variant;
        let approach = self.approach(approach).in_tenant(variant, tenant);
        name_tenant(variant, &mut call.params, tenant);
        if variant.binding == Binding::WebSocket
            && let Err(reply) = Ws::try_new(endpoint, &approach, variant.generation)
        {
            let answer = response(&Value::Null, &reply.json());
            let answer = answer.map_err(|fault| Fault { http: Some(reply.status), ..fault });
            return Attempt { answer, reply };
        }
        let mut client = Server::client_at(endpoint, variant, &approach);
        let answer = client.link.call(&call);
        Attempt { answer, reply: approach.replies.last() }
    }
}

/// Panics unless an anonymous caller is refused.
fn assert_stranger(door: Door, attempt: &Attempt, why: &str, challenge: &str) {
    let (what, reply) = (format!("{door:?}"), &attempt.reply);
    // RFC 9110 §11.6.1: with every 401.
    assert_eq!(reply.field("www-authenticate"), Some(challenge), "{what}");
    let is_grpc = door.variant.binding == Binding::Grpc;
    assert_eq!(reply.status, if is_grpc { 200 } else { 401 }, "{what}");
    // The server did not read the body, so no request can follow it.
    let closes = door.variant.carrier == Carrier::Http1;
    assert_eq!(reply.closes(), closes, "{what}");
    if door.variant.is_rpc() {
        assert!(reply.json()["id"].is_null(), "{what}");
    }
    // Only a version in the head tells the generation; the body is not read.
    let anonymous_door = Door { variant: door.variant_of_anonymous_refusal(), ..door };
    assert_form(anonymous_door, Op::Send, "Unauthenticated", attempt, why);
}

/// Panics unless a caller is refused this operation.
fn assert_forbidden(door: Door, op: Op, attempt: &Attempt, why: &str) {
    let (what, reply) = (format!("{door:?}"), &attempt.reply);
    let status = match door.variant.binding {
        Binding::JsonRpc | Binding::Rest => 403,
        Binding::Grpc => 200,
        Binding::WebSocket => 0,
    };
    assert_eq!(reply.status, status, "{what}: {reply:?}");
    assert_eq!(reply.field("www-authenticate"), None, "{what}");
    assert!(!reply.closes(), "{what}");
    assert_form(door, op, "PermissionDenied", attempt, why);
}

/// Panics unless a refusal has the form of its endpoint for this operation.
fn assert_form(door: Door, op: Op, name: &str, attempt: &Attempt, why: &str) {
    let what = format!("{door:?} {op:?}");
    let fault = attempt.answer.as_ref().expect_err(&what);
    let what = format!("{what} {fault:?}");
    let Some(row) = REFUSALS.iter().find(|row| row.dialect == door.dialect) else {
        assert_fault(door.variant, op, name, fault);
        // Wire §2.4: `<ErrorName>: <text>` in 0.3's gRPC.
        assert!(fault.message.ends_with(why), "{what}");
        return;
    };
    let which = usize::from(name == "PermissionDenied");
    assert_eq!(fault.code, Some(row.codes[which]), "{what}");
    assert_eq!(fault.reason, None, "{what}");
    match row.message {
        None => assert_eq!(fault.message, why, "{what}"),
        Some(messages) => {
            assert_eq!(fault.message, messages[which], "{what}");
            let body: Value = serde_json::from_slice(&attempt.reply.body).expect("JSON");
            assert_eq!(body["error"]["data"]["details"], why, "{what}");
        }
    }
}

/// The reason of a refusal, and its challenge.
fn refusal(kind: Kind, credential: Credential) -> (&'static str, String) {
    let why = match (credential, kind) {
        // A certificate without a name authenticates no caller.
        (Credential::Absent, _) | (Credential::Wrong, Kind::Certificate) => {
            "Authentication is required"
        }
        (Credential::Wrong, Kind::Key | Kind::NamedKey) => "the API key is unknown",
        (Credential::Wrong, Kind::Bearer) => "the token is unknown",
        (Credential::Wrong, Kind::Jwt | Kind::SignedJwt) => "the token's signature is invalid",
        (Credential::Wrong, Kind::Proxy) => "the caller's name has invalid characters",
        (Credential::Expired, Kind::Key | Kind::NamedKey) => "the API key has expired",
        (Credential::Expired, _) => "the token has expired",
        (Credential::Reader | Credential::Right, _) => unreachable!("they are known"),
    };
    let challenge = match kind {
        Kind::Key | Kind::Bearer | Kind::Jwt | Kind::SignedJwt | Kind::Proxy => {
            // RFC 6750 §3.1: only for a token that was presented.
            let is_of_bearer = !matches!(kind, Kind::Key | Kind::Proxy);
            let is_token = credential != Credential::Absent && is_of_bearer;
            let error = format!(", error=\"invalid_token\", error_description=\"{why}\"");
            let error = if is_token { &*error } else { "" };
            format!("Bearer realm=\"a2a\"{error}, ApiKey realm=\"a2a\", header=\"X-API-Key\"")
        }
        Kind::NamedKey | Kind::Certificate => {
            "ApiKey realm=\"a2a\", header=\"X-Robot-Key\", Certificate realm=\"a2a\"".to_owned()
        }
    };
    (why, challenge)
}

/// The number of a caller's tasks, in its own tenant.
pub fn tasks(guarded: &Guarded, kind: Kind, credential: Credential) -> u64 {
    let (endpoint, approach) = guarded.caller(kind, credential).expect("an authenticated caller");
    let mut client = Server::client_at(&endpoint, OBSERVER, &approach);
    client.list(&Filter::default()).expect("a page").total
}

/// The version in the head decides the form of a refusal.
fn try_versions(guarded: &Guarded) {
    for carrier in [Carrier::Http1, Carrier::Http2] {
        for (generation, version) in [(V01, "0.1"), (V03, "0.2"), (V03, "0.3"), (V1, "1.0")] {
            let Door { variant, .. } = door("", Binding::JsonRpc, generation, carrier);
            let (endpoint, approach) =
                guarded.caller(Kind::Key, Credential::Absent).expect("an anonymous caller");
            let spec = variant.form().send_params(&text_spec("done"));
            let version = Some((version, By::Field));
            let call = Call { version, ..Call::new(Op::Send, spec) };
            let mut client = Server::client_at(&endpoint, variant, &approach);
            let fault = client.link.call(&call).expect_err("the caller is anonymous");
            assert_fault(variant, Op::Send, "Unauthenticated", &fault);
        }
    }
}

/// All outcomes of one kind of credential at one endpoint.
fn try_door(guarded: &Guarded, kind: Kind, door: Door) {
    let context = format!("{kind:?}-{}-{:?}", door.dialect, door.variant);
    let context: String = context.chars().filter(|c| c.is_alphanumeric()).collect();
    let send = || Call::new(Op::Send, door.params(&context));
    let before = tasks(guarded, kind, Credential::Right);
    for credential in [Credential::Absent, Credential::Wrong, Credential::Expired] {
        let Some((endpoint, approach)) = guarded.caller(kind, credential) else { continue };
        let (why, challenge) = refusal(kind, credential);
        let attempt = door.call(&endpoint, &approach, send(), "");
        assert_stranger(door, &attempt, why, &challenge);
    }
    if let Some((endpoint, approach)) = guarded.caller(kind, Credential::Reader) {
        let attempt = door.call(&endpoint, &approach, send(), "");
        assert_forbidden(door, Op::Send, &attempt, "missing scope \"a2a:send\"");
        assert_eq!(tasks(guarded, kind, Credential::Reader), 0);
    }
    let (endpoint, approach) = guarded.caller(kind, Credential::Right).expect("there is one");
    let attempt = door.call(&endpoint, &approach, send(), "else");
    assert_forbidden(door, Op::Send, &attempt, "the caller may not use the tenant else");
    assert_eq!(tasks(guarded, kind, Credential::Right), before, "{door:?}");
    let attempt = door.call(&endpoint, &approach, send(), "");
    let made = attempt.answer.unwrap_or_else(|fault| panic!("{door:?}: {fault:?}"));
    assert_eq!(tasks(guarded, kind, Credential::Right), before + 1, "{door:?}");
    let id = if made["task"].is_object() { &made["task"]["id"] } else { &made["id"] };
    // An operation on its own task that its scopes do not allow.
    let mut cancel = Call::new(Op::Cancel, json!({"id": id}));
    if door.dialect == "langsmith" {
        cancel.params["contextId"] = json!(context);
    }
    let attempt = door.call(&endpoint, &approach, cancel, "");
    assert_forbidden(door, Op::Cancel, &attempt, "missing scope \"a2a:cancel\"");
}

#[test]
fn credentials_are_checked_at_every_endpoint_without_tls() {
    let guarded = Guarded::start("access");
    for kind in Kind::PLAIN {
        for door in doors() {
            eprintln!("{kind:?} at {door:?}");
            try_door(&guarded, kind, door);
        }
    }
    try_versions(&guarded);
}

#[test]
fn credentials_are_checked_at_every_endpoint_with_tls() {
    let guarded = Guarded::start("access-tls");
    for kind in Kind::SECURE {
        for door in doors() {
            eprintln!("{kind:?} at {door:?}");
            try_door(&guarded, kind, door);
        }
    }
}
