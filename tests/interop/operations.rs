//! Each operation by each caller: an anonymous caller can execute none at any endpoint, an
//! authenticated caller only the operations of its scopes.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use peregrine::{
    agent::{Agent, Profile, Turn},
    auth::{AuthRules, Callers, KeyRule, KnownCaller, ScopeSet, SecretDigest},
    engine::{Mount, Setup},
    model::TaskState,
    net::{Running, Server as Serving},
};
use serde_json::{Value, json};

use super::{
    access::{Door, doors},
    client::{Call, Op},
    credentials::{Credential, Guarded, Kind, MOUNTED, token},
    errors::assert_fault,
    exchange::Approach,
    jsonrpc::method,
    message_spec::text_spec,
    model::V01,
    place::Endpoint,
    server::Server,
    theirs::push_params,
    variants::{Binding, Carrier, VARIANTS, Variant},
    ws::Ws,
};

const OPS: [Op; 11] = [
    Op::Send,
    Op::Stream,
    Op::Get,
    Op::List,
    Op::Cancel,
    Op::Subscribe,
    Op::PushSet,
    Op::PushGet,
    Op::PushList,
    Op::PushDelete,
    Op::ExtendedCard,
];

const NOBODYS: &str = "nobodys-task";

/// Whether a pair has an operation.
fn has(variant: Variant, op: Op) -> bool {
    if op == Op::List {
        return variant.lists();
    }
    variant.generation != V01 || method(op, V01).is_some()
}

fn call_of(variant: Variant, op: Op) -> Call {
    let params = match op {
        Op::Send | Op::Stream => variant.form().send_params(&text_spec("done")),
        Op::Get | Op::Cancel | Op::Subscribe => json!({"id": NOBODYS}),
        Op::List | Op::ExtendedCard => json!({}),
        Op::PushSet | Op::PushGet | Op::PushList | Op::PushDelete => {
            push_params(variant, op, NOBODYS)
        }
    };
    Call::new(op, params)
}

/// Counts its messages, and completes each at once.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Agent for Counts {
    fn start(&self, mut turn: Turn<'_>) {
        self.0.fetch_add(1, Relaxed);
        turn.status(TaskState::Completed);
    }
}

/// A server in this process that accepts one key.
fn serve(agent: &Arc<Counts>) -> Running {
    let caller = KnownCaller {
        name: "right".to_owned(),
        scopes: ScopeSet::new([ScopeSet::READ, ScopeSet::SEND]),
        ..KnownCaller::default()
    };
    let digest = SecretDigest::take("key-of-caller-right".to_owned());
    let api_keys = vec![KeyRule { digest, caller, expires_unix_ms: None }];
    let callers = Callers::new(AuthRules { api_keys, ..AuthRules::default() }).expect("callers");
    let mounts = MOUNTED.map(|name| Mount {
        path: format!("/{name}"),
        dialect: name.to_owned(),
        agent: None,
    });
    let agent: Arc<dyn Agent> = Arc::<Counts>::clone(agent);
    let setup = Setup {
        agents: vec![(Profile::new("counts", "Counts."), agent)],
        mounts: mounts.to_vec(),
        authenticator: Some(Arc::new(callers)),
        trusted_proxies: vec!["127.0.0.1/32".parse().expect("a network")],
        ..Setup::default()
    };
    Serving::with(setup).listen("127.0.0.1:0").workers(1).start().expect("a server")
}

/// A client with this key, from its own address.
fn showing(key: Option<&str>, number: &mut u32) -> Approach {
    *number += 1;
    let address = std::net::Ipv4Addr::from(0x0a00_0000 + *number).to_string();
    let key = key.map(|key| ("X-API-Key", key.to_owned()));
    Approach::with(
        &[key, Some(("X-Forwarded-For", address))].into_iter().flatten().collect::<Vec<_>>(),
    )
}

#[test]
fn unauthenticated_calls_never_reach_the_agent() {
    let agent = Arc::new(Counts::default());
    let running = serve(&agent);
    let endpoint = Endpoint { addr: running.addrs()[0], trust: None, authority: None };
    let (mut tried, mut number) = (0, 0);
    for door in doors() {
        let variant = door.variant;
        for key in [None, Some("key-wrong")] {
            let approach = door.approach(&showing(key, &mut number));
            if variant.binding == Binding::WebSocket {
                let reply = Ws::try_new(&endpoint, &approach, variant.generation).err();
                assert_eq!(reply.expect("no upgrade").status, 401, "{door:?}");
                continue;
            }
            let mut client = Server::client_at(&endpoint, variant, &approach);
            for op in OPS.into_iter().filter(|op| has(variant, *op)) {
                // With a key, each attempt may be the one above the limit of its address.
                if key.is_some() && !matches!(op, Op::Send | Op::Stream | Op::Cancel) {
                    continue;
                }
                approach.replies.take();
                let fault = client.fault(&call_of(variant, op));
                let reply = approach.replies.last();
                assert!(reply.field("www-authenticate").is_some(), "{door:?} {op:?} {fault:?}");
                let is_grpc = variant.binding == Binding::Grpc;
                assert_eq!(reply.status, if is_grpc { 200 } else { 401 }, "{door:?} {op:?}");
                let code = reply.field("grpc-status");
                assert_eq!(code, is_grpc.then_some("16"), "{door:?} {op:?}");
                tried += 1;
            }
        }
        assert_eq!(agent.0.load(Relaxed), 0, "{door:?}");
    }
    assert!(tried > 300, "{tried}");
    // An authenticated caller reaches the agent.
    let expected: usize =
        doors().into_iter().map(|door| send_authenticated(&endpoint, door, &mut number)).sum();
    assert_eq!(agent.0.load(Relaxed), expected);
}

/// A send of an authenticated caller, which is one turn.
fn send_authenticated(endpoint: &Endpoint, door: Door, number: &mut u32) -> usize {
    let approach = door.approach(&showing(Some("key-of-caller-right"), number));
    let mut client = Server::client_at(endpoint, door.variant, &approach);
    let answer = client.link.call(&Call::new(Op::Send, door.params("context")));
    answer.unwrap_or_else(|fault| panic!("{door:?}: {fault:?}"));
    1
}

/// The scope of an operation (docs/guide/callers.md, "scopes").
fn scope_of(op: Op) -> &'static str {
    match op {
        Op::Send | Op::Stream | Op::PushSet | Op::PushDelete => "a2a:send",
        Op::Cancel => "a2a:cancel",
        Op::Get | Op::List | Op::Subscribe | Op::PushGet | Op::PushList | Op::ExtendedCard => {
            "a2a:read"
        }
    }
}

/// The result of a call: the fault, or nothing.
fn tried(
    endpoint: &Endpoint,
    variant: Variant,
    scopes: &str,
    op: Op,
) -> Option<super::client::Fault> {
    let token = token("somebody", scopes, &[], 3600);
    let fields = [("Authorization", format!("Bearer {token}"))];
    let mut client = Server::client_at(endpoint, variant, &Approach::with(&fields));
    let call = call_of(variant, op);
    let answer: Result<Value, _> = match op {
        Op::Stream | Op::Subscribe => match client.link.open(&call).map(|mut items| items.next()) {
            Ok(super::client::Item::Fault(fault)) | Err(fault) => Err(fault),
            Ok(_) => Ok(Value::Null),
        },
        _ => client.link.call(&call),
    };
    answer.err()
}

#[test]
fn each_operation_requires_its_scope() {
    let guarded = Guarded::start("scopes");
    let (endpoint, _) = guarded.caller(Kind::Jwt, Credential::Absent).expect("a place");
    let all = BTreeSet::from(["a2a:read", "a2a:send", "a2a:cancel", "a2a:admin"]);
    for &variant in VARIANTS {
        // The carriers do not differ here.
        if variant.carrier == Carrier::Http2 && variant.binding != Binding::Grpc {
            continue;
        }
        for op in OPS.into_iter().filter(|op| has(variant, *op)) {
            let scope = scope_of(op);
            let others: Vec<&str> = all.iter().copied().filter(|one| *one != scope).collect();
            for scopes in [others.join(" "), String::new(), scope.to_uppercase()] {
                let fault = tried(&endpoint, variant, &scopes, op);
                let fault = fault.unwrap_or_else(|| panic!("{variant:?} {op:?}"));
                assert_fault(variant, op, "PermissionDenied", &fault);
                let why = format!("missing scope {scope:?}");
                assert!(fault.message.ends_with(&why), "{fault:?}");
            }
            // With this scope alone the call is executed, with its own result.
            let name = match op {
                Op::Send | Op::Stream | Op::List | Op::ExtendedCard => None,
                Op::Get | Op::Cancel | Op::Subscribe => Some("TaskNotFound"),
                Op::PushSet | Op::PushGet | Op::PushList | Op::PushDelete => Some("TaskNotFound"),
            };
            match (tried(&endpoint, variant, scope, op), name) {
                (None, None) => {}
                (Some(fault), Some(name)) => assert_fault(variant, op, name, &fault),
                (fault, name) => panic!("{variant:?} {op:?}: {fault:?}, not {name:?}"),
            }
        }
    }
}
