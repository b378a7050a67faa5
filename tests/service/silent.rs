//! A service that never answers: whoever waits for it hears so when the server ends.

use std::{
    sync::Arc,
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

use crate::support::{
    Lab,
    ask::{post, rpc, rpc_id},
    ws::Sent,
};

struct Silent(Arc<Profile>);

impl Lifecycle for Silent {}

impl Service for Silent {
    fn call(&self, _: &mut CallCx<'_>, _: Call<'_>, _: &mut Answer<'_>) -> Result<Outcome, Fault> {
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
        (agent.0 == 0).then(|| Arc::clone(&self.0))
    }
}

fn lab() -> Lab {
    let service = Silent(Arc::new(Profile::new("silent", "Says nothing.")));
    Lab::new(Setup { service: Some(Arc::new(service)), ..Setup::default() })
}

fn code(answer: &Value) -> &Value {
    &answer["error"]["code"]
}

#[test]
fn calls_that_still_wait_at_the_cut_hear_that_the_server_ends() {
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
    let said = lab.frames(socket);
    let answers: Vec<Value> =
        said.iter().filter(|sent| matches!(sent, Sent::Text(_))).map(Sent::json).collect();
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(7), &json!(8)]);
    assert!(answers.iter().all(|answer| *code(answer) == -32000), "{answers:?}");
}
