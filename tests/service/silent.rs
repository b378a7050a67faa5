//! A service that never answers: its waiting calls get an error when the server ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Poll, Waker},
};

use peregrine::{
    agent::Profile,
    engine::Setup,
    fault::Fault,
    model::Call,
    service::{
        AgentIndex, Answer, CallCx, Cursor, Each, Follow, Lifecycle, Outcome, Service, WaitHandle,
    },
};
use serde_json::{Value, json};

use crate::{
    grpc_client::{Rig, run, say},
    support::{
        Lab,
        ask::{post, rpc, rpc_id},
        ws::Sent,
    },
};

struct PendingService {
    profile: Arc<Profile>,
    /// The number of received calls.
    calls: Arc<AtomicUsize>,
}

impl Lifecycle for PendingService {}

impl Service for PendingService {
    fn call(&self, _: &mut CallCx<'_>, _: Call<'_>, _: &mut Answer<'_>) -> Result<Outcome, Fault> {
        self.calls.fetch_add(1, SeqCst);
        Ok(Outcome::Pending(WaitHandle::default()))
    }

    fn poll(
        &self,
        _: &mut WaitHandle,
        _: &Waker,
        _: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>> {
        Poll::Pending
    }

    fn follow(&self, _: &mut Cursor, _: &Waker, _: &mut Each<'_>) -> Follow {
        Follow::Gone
    }

    fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>> {
        (agent.0 == 0).then(|| Arc::clone(&self.profile))
    }
}

fn pending_service(calls: &Arc<AtomicUsize>) -> Arc<dyn Service> {
    let profile = Arc::new(Profile::new("silent", "Says nothing."));
    Arc::new(PendingService { profile, calls: Arc::clone(calls) })
}

fn lab() -> Lab {
    Lab::new(Setup { service: Some(pending_service(&Arc::default())), ..Setup::default() })
}

fn code(answer: &Value) -> &Value {
    &answer["error"]["code"]
}

#[test]
fn calls_waiting_at_the_cut_get_an_error() {
    let mut lab = lab();
    let params = json!({"id": "x"});
    let get = rpc("GetTask", &params);
    let bodies = [get.clone(), format!("[{get},{}]", rpc_id("2", "tasks/get", &params))];
    let peers = bodies.map(|body| {
        let peer = lab.open();
        lab.write(peer, &post("/", &[("A2A-Version", "1.0")], &body));
        assert!(lab.received(peer).is_empty());
        peer
    });
    let socket = lab.socket("/", "");
    for id in ["7", "8"] {
        assert_eq!(lab.say(socket, &rpc_id(id, "GetTask", &params)), Vec::<Value>::new());
    }
    lab.engine.drain();
    lab.engine.cut();
    lab.settle_all();
    let [single, batch] = peers.map(|peer| {
        let reply = lab.reply(peer);
        (reply.status, serde_json::from_str::<Value>(reply.text()).unwrap())
    });
    assert_eq!((single.0, code(&single.1)), (503, &json!(-32000)));
    assert_eq!(batch.1.as_array().unwrap().len(), 2);
    assert!(batch.1.as_array().unwrap().iter().all(|answer| *code(answer) == -32000));
    let frames = lab.frames(socket);
    let answers: Vec<Value> =
        frames.iter().filter(|sent| matches!(sent, Sent::Text(_))).map(Sent::json).collect();
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(7), &json!(8)]);
    assert!(answers.iter().all(|answer| *code(answer) == -32000), "{answers:?}");
}

#[test]
fn calls_waiting_over_http2_get_an_error_at_shutdown() {
    let calls = Arc::new(AtomicUsize::new(0));
    let rig = Rig::with(|setup| {
        setup.agents.clear();
        setup.service = Some(pending_service(&calls));
        setup.limits.drain_ms = 100;
    });
    run(async {
        let mut grpc = rig.v1().await;
        let stream = tokio::net::TcpStream::connect(rig.0.addrs()[0]).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let uri = "http://test.example/";
        let request = http::Request::post(uri).header("content-type", "application/json");
        let request = request.header("a2a-version", "1.0").body(()).unwrap();
        let (answer, mut body) = client.send_request(request, false).unwrap();
        body.send_data(rpc("GetTask", &json!({"id": "x"})).into(), true).unwrap();
        let end = async {
            while calls.load(SeqCst) < 2 {
                tokio::task::yield_now().await;
            }
            rig.0.shutdown();
        };
        let (status, answer, ()) = tokio::join!(grpc.send_message(say("x")), answer, end);
        let status = status.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(status.message().contains("the server shut down"), "{status:?}");
        let mut answer = answer.unwrap();
        assert_eq!(answer.status(), 503);
        let text = answer.body_mut().data().await.unwrap().unwrap();
        assert_eq!(*code(&serde_json::from_slice(&text).unwrap()), -32000);
    });
    rig.0.join();
}
