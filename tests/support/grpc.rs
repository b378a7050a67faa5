//! A gRPC client generated from the same proto files, and a server for it.

#![allow(dead_code)]

use std::{future::Future, sync::Arc};

use peregrine::{
    agent::{Agent, Profile, echo::Echo, script::Script},
    binding::interfaces::{Binding, Interface},
    engine::Setup,
    limits::Limits,
    net::{Running, Server},
};
use prost::Message as _;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

macro_rules! generated {
    ($($name:ident: $file:literal;)+) => {
        $(#[allow(warnings, clippy::all)]
        pub mod $name { include!(concat!("proto/", $file, ".rs")); })+
    };
}

generated! {
    v1: "lf.a2a.v1";
    v03: "a2a.v1";
    json: "json.a2a.v1";
    health: "grpc.health.v1";
    reflection: "grpc.reflection.v1";
    reflection_alpha: "grpc.reflection.v1alpha";
    google: "google.rpc";
}

pub type V1 = v1::a2a_service_client::A2aServiceClient<Channel>;
pub type V03 = v03::a2a_service_client::A2aServiceClient<Channel>;
pub type Json = json::a2a_service_client::A2aServiceClient<Channel>;

/// An agent for the cases that echo lacks.
const SCRIPT: &str = r#"
[[rule]]
[[rule.step]]
status = "working"

[[rule]]
text = "ask"
[[rule.step]]
status = "input-required"
text = "what?"
"#;

/// A server in this process.
pub struct Rig(pub Running);

impl Rig {
    pub fn echo() -> Rig {
        Rig::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut Setup)) -> Rig {
        let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![
            (Echo::profile(), Arc::new(Echo)),
            (
                Profile::new("other", "Works, or asks."),
                Arc::new(Script::parse(SCRIPT).expect("a script")),
            ),
        ];
        let allow_hosts = ["test.example", "x"].map(str::to_owned).to_vec();
        let interfaces = Binding::ALL.map(Interface::of).to_vec();
        let mut setup =
            Setup { agents, allow_hosts, interfaces, extended_card: true, ..Setup::default() };
        change(&mut setup);
        let server = Server::with(setup).listen("127.0.0.1:0").workers(1);
        Rig(server.start().expect("a server"))
    }

    pub fn limited(change: impl FnOnce(&mut Limits)) -> Rig {
        Rig::with(|setup| change(&mut setup.limits))
    }

    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(self.0.base_url().to_owned()).expect("a URL");
        endpoint.connect().await.expect("a connection")
    }

    pub async fn v1(&self) -> V1 {
        V1::new(self.channel().await).max_decoding_message_size(64 << 20)
    }

    pub async fn v03(&self) -> V03 {
        V03::new(self.channel().await)
    }

    pub async fn json(&self) -> Json {
        Json::new(self.channel().await)
    }
}

/// Runs a test's client on this thread.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

pub fn text(text: &str) -> v1::Part {
    v1::Part { content: Some(v1::part::Content::Text(text.to_owned())), ..Default::default() }
}

pub fn message(parts: Vec<v1::Part>) -> v1::SendMessageRequest {
    let message = v1::Message {
        message_id: "m".to_owned(),
        role: v1::Role::User.into(),
        parts,
        ..Default::default()
    };
    v1::SendMessageRequest { message: Some(message), ..Default::default() }
}

pub fn say(words: &str) -> v1::SendMessageRequest {
    message(vec![text(words)])
}

pub fn text_message_v03(words: &str, blocking: bool) -> v03::SendMessageRequest {
    let part = v03::part::Part::Text(words.to_owned());
    let request = v03::Message {
        message_id: "m".to_owned(),
        role: v03::Role::User.into(),
        content: vec![v03::Part { part: Some(part), metadata: None }],
        ..Default::default()
    };
    let configuration = v03::SendMessageConfiguration { blocking, ..Default::default() };
    v03::SendMessageRequest {
        request: Some(request),
        configuration: Some(configuration),
        metadata: None,
    }
}

pub fn task(response: v1::SendMessageResponse) -> v1::Task {
    match response.payload {
        Some(v1::send_message_response::Payload::Task(task)) => task,
        other => panic!("{other:?}"),
    }
}

pub fn state(task: &v1::Task) -> v1::TaskState {
    task.status.as_ref().expect("a status").state()
}

/// The reason in the details of a status, after checking the other details.
pub fn reason(status: &Status, code: Code) -> String {
    assert_eq!(status.code(), code, "{status:?}");
    let details = google::Status::decode(status.details()).expect("a google.rpc.Status");
    assert_eq!(details.code, code as i32);
    assert_eq!(details.message, status.message());
    let info = details.details.first().expect("ErrorInfo");
    assert_eq!(info.type_url, "type.googleapis.com/google.rpc.ErrorInfo");
    let info = google::ErrorInfo::decode(&*info.value).expect("ErrorInfo");
    assert_eq!(info.domain, "a2a-protocol.org");
    info.reason
}
