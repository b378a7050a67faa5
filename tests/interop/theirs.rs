//! Ownership: for a caller without the right to it, a task, a context or a message id does not
//! exist, with the same bytes as for an unknown id, in every pair.

use serde_json::{Value, json};

use super::{
    client::{By, Call, Client, Fault, Item, Op, Target},
    credentials::{ISSUERS, agent_sections, auth_sections, configured, token_of},
    errors::assert_fault,
    exchange::{Approach, Replies, name_tenant},
    message_spec::{MessageSpec, text_spec},
    model::{Gen, V01, V1, V03},
    place::Endpoint,
    server::Server,
    variants::{Binding, OBSERVER, VARIANTS, Variant},
};
use crate::support::reply::Reply;

/// Alice in another tenant, named by her token.
pub const CLAIMED: &str = "alice in the tenant of her token";
/// Alice in another tenant, named by her call.
pub const NAMED: &str = "alice in a tenant that she names";

const ALL: &str = "a2a:read a2a:send a2a:cancel";

/// A caller in a tenant.
#[derive(Clone, Debug)]
pub struct Person {
    pub what: &'static str,
    pub fields: Vec<(&'static str, String)>,
    /// The tenant in the call; empty: the first of the credential.
    pub tenant: &'static str,
}

fn by_token(what: &'static str, issuer: usize, name: &str, tenants: &[&str]) -> Person {
    let token = token_of(ISSUERS[issuer], name, ALL, tenants, 3600);
    Person { what, fields: vec![("Authorization", format!("Bearer {token}"))], tenant: "" }
}

pub fn alice() -> Person {
    by_token("alice in acme", 0, "alice", &["acme", "other"])
}

pub fn bob() -> Person {
    by_token("bob in acme", 0, "bob", &["acme", "other"])
}

/// Every other caller than alice in acme; some have the name alice.
pub fn others() -> Vec<Person> {
    let key = |name: &str| vec![("X-API-Key", format!("key-of-caller-{name}"))];
    vec![
        bob(),
        Person { what: "bob in alice's other tenant", tenant: "other", ..bob() },
        by_token(CLAIMED, 0, "alice", &["other"]),
        Person { what: NAMED, tenant: "other", ..alice() },
        by_token("alice in no tenant", 0, "alice", &[]),
        by_token("alice of another issuer", 1, "alice", &["acme", "other"]),
        Person { what: "alice by a key", fields: key("alice"), tenant: "" },
    ]
}

pub fn server(name: &str) -> Server {
    let text = format!("tenants = \"any\"\n{}{}", auth_sections("alice"), agent_sections());
    let binary = configured(name, &text);
    let endpoint = Endpoint { addr: binary.addr(), trust: None, authority: None };
    Server { binary, endpoint }
}

/// A caller's client, and its replies.
pub struct Caller {
    pub client: Client,
    pub replies: Replies,
    tenant: &'static str,
}

impl Caller {
    pub fn new(server: &Server, variant: Variant, person: &Person) -> Caller {
        Caller::with(server, variant, person, &[])
    }

    pub fn with(
        server: &Server,
        variant: Variant,
        person: &Person,
        more: &[(&'static str, String)],
    ) -> Caller {
        let fields = [&person.fields[..], more].concat();
        let approach = Approach::with(&fields).in_tenant(variant, person.tenant);
        let client = server.client_with(variant, &approach);
        Caller { client, replies: approach.replies, tenant: person.tenant }
    }

    fn in_tenant(&self, call: &Call) -> Call {
        let mut call = call.clone();
        name_tenant(self.client.variant, &mut call.params, self.tenant);
        call
    }

    /// A refusal, and all of its bytes except the task's id.
    pub fn refused(&mut self, call: &Call, id: &str) -> (Fault, String) {
        self.replies.take();
        let fault = self.client.fault(&self.in_tenant(call));
        let answers = self.replies.take().iter().map(|reply| without_id(reply, id)).collect();
        (fault, answers)
    }

    pub fn call(&mut self, call: &Call) -> Result<Value, Fault> {
        self.client.link.call(&self.in_tenant(call))
    }

    /// A task that this caller has made.
    pub fn made(&self, task: &Value) -> Target {
        let id = task["id"].as_str().unwrap_or_else(|| panic!("no task: {task}")).to_owned();
        Target { id, made: self.client.variant.generation }
    }

    /// The task of a streamed send, from its first event.
    pub fn streamed(&mut self, spec: &MessageSpec) -> String {
        let params = self.client.variant.form().send_params(spec);
        let call = self.in_tenant(&Call::new(Op::Stream, params));
        let first = self.client.link.open(&call).expect("a stream").next();
        let Item::Event { value, .. } = first else { panic!("no event: {first:?}") };
        let whole = ["task", "statusUpdate"].into_iter().find_map(|name| value.get(name));
        let task = whole.unwrap_or(&value);
        let id = task["taskId"].as_str().or(task["id"].as_str());
        id.unwrap_or_else(|| panic!("no task: {value}")).to_owned()
    }

    pub fn send(&mut self, spec: &MessageSpec) -> Result<Value, Fault> {
        let params = self.client.variant.form().send_params(spec);
        self.call(&Call::new(Op::Send, params)).map(|answer| match &answer["task"] {
            Value::Null => answer,
            task => task.clone(),
        })
    }
}

/// An answer without its time, and with the task's id replaced.
pub fn without_id(reply: &Reply, id: &str) -> String {
    let fields = reply.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("date"));
    let fields: Vec<_> = fields.collect();
    let body = String::from_utf8_lossy(&reply.body).replace(id, "ID");
    format!("{} {fields:?} {body}\n", reply.status)
}

/// An id of the same form, of no task.
pub fn unlike(id: &str) -> String {
    let last = if id.ends_with('0') { "1" } else { "0" };
    format!("{}{last}", &id[..id.len() - 1])
}

/// All operations that read a task, with the error for a missing task.
fn calls(variant: Variant, id: &str, context: &str) -> Vec<(Call, &'static str)> {
    let about = |op| Call::new(op, json!({"id": id}));
    let after = |by| Call { after: Some((1, by)), ..about(Op::Subscribe) };
    let mut all = vec![
        (Call::new(Op::Get, json!({"id": id, "historyLength": 3})), "TaskNotFound"),
        (about(Op::Cancel), "TaskNotFound"),
        (about(Op::Subscribe), "TaskNotFound"),
        (after(By::Field), "TaskNotFound"),
    ];
    if variant.is_json() {
        all.push((Call::new(Op::Get, json!({"id": id, "wait": 9})), "TaskNotFound"));
        let wait = json!({"id": id, "wait": 9, "afterEvent": 1});
        all.push((Call::new(Op::Get, wait), "TaskNotFound"));
        all.push((after(By::Query), "TaskNotFound"));
    }
    for op in [Op::PushSet, Op::PushGet, Op::PushList, Op::PushDelete] {
        if variant.generation != V01 || matches!(op, Op::PushSet | Op::PushGet) {
            let params = push_params(variant, op, id);
            all.push((Call::new(op, params), "TaskNotFound"));
        }
    }
    if !variant.names_tasks() {
        for op in [Op::Send, Op::Stream] {
            for context in [None, Some(context.to_owned())] {
                let spec = MessageSpec { task: Some(id.to_owned()), context, ..text_spec("done") };
                let params = variant.form().send_params(&spec);
                all.push((Call::new(op, params), "TaskNotFound"));
            }
        }
    }
    all
}

pub fn push_params(variant: Variant, op: Op, id: &str) -> Value {
    let config = json!({"url": "http://127.0.0.1:9/hook"});
    let name = format!("tasks/{id}/pushNotificationConfigs/c");
    match (variant.binding, variant.generation, op) {
        (Binding::Grpc, V03, Op::PushGet | Op::PushDelete) => json!({"name": name}),
        (Binding::Grpc, V03, Op::PushList) => json!({"parent": format!("tasks/{id}")}),
        (_, V1, Op::PushSet) => json!({"taskId": id, "url": config["url"]}),
        (_, V1, Op::PushList) | (Binding::Rest, V1 | V03, Op::PushGet | Op::PushDelete) => {
            json!({"taskId": id})
        }
        (_, V1, _) => json!({"taskId": id, "id": "c"}),
        (_, V03, Op::PushSet) => json!({"taskId": id, "pushNotificationConfig": config}),
        (_, V01, Op::PushSet) => json!({"id": id, "pushNotificationConfig": config}),
        _ => json!({"id": id, "pushNotificationConfigId": "c"}),
    }
}

/// One of alice's tasks.
pub struct Hers {
    pub target: Target,
    pub context: String,
    /// Her view of it.
    pub seen: Value,
}

pub fn get(server: &Server, person: &Person, target: &Target) -> Value {
    let mut caller = Caller::new(server, OBSERVER, person);
    caller.call(&Call::new(Op::Get, json!({"id": target.id}))).expect("a task of hers")
}

/// Alice's tasks in acme, across the generations: waiting, running and completed.
pub fn hers(server: &Server) -> Vec<Hers> {
    let rpc = |generation: Gen| Variant { generation, ..OBSERVER };
    let made = [(V01, "ask"), (V03, "hold"), (V1, "done"), (V1, "hold")];
    let made = made.into_iter().map(|(generation, text)| {
        let mut caller = Caller::new(server, rpc(generation), &alice());
        let spec = text_spec(text).within(&format!("context-of-{text}"));
        let task = caller.send(&spec).expect("a task");
        let id = task["id"].as_str().expect("an id").to_owned();
        let target = Target { id, made: generation };
        let seen = get(server, &alice(), &target);
        Hers { target, context: spec.context.expect("a context"), seen }
    });
    made.collect()
}

#[test]
fn a_task_of_another_caller_is_answered_like_a_missing_one() {
    let server = server("theirs-tasks");
    let hers = hers(&server);
    for &variant in VARIANTS {
        // The head announces that the client waits.
        let patient = [("Prefer", "wait=9".to_owned())];
        let (others, bob) = (others(), bob());
        let all = others.iter().map(|one| (one, &[][..])).chain([(&bob, &patient[..])]);
        for (person, more) in all {
            eprintln!("{} in {variant:?}:", person.what);
            // Two clients in step, so that even the ids of requests are the same.
            let [mut one, mut two] = [(); 2].map(|()| Caller::with(&server, variant, person, more));
            for task in &hers {
                let id = &task.target.id;
                let nothing = unlike(id);
                let existing = calls(variant, id, &task.context);
                let missing = calls(variant, &nothing, &task.context);
                for ((existing, name), (missing, _)) in existing.iter().zip(&missing) {
                    let (fault, answers) = one.refused(existing, id);
                    assert_fault(variant, existing.op, name, &fault);
                    let (_, as_nothing) = two.refused(missing, &nothing);
                    assert_eq!(answers, as_nothing, "{variant:?} {} {existing:?}", person.what);
                    assert!(!answers.is_empty());
                }
            }
        }
        // Alice finds each of them.
        let mut alice = Caller::new(&server, variant, &alice());
        for task in &hers {
            alice.client.get(&task.target).expect("a task of hers");
        }
    }
    for task in &hers {
        assert_eq!(get(&server, &alice(), &task.target), task.seen);
    }
}
