//! Properties of artifact streams: each event has the content that its agent published, even if the
//! stream repeats earlier bytes.

use std::sync::Arc;

use peregrine::{
    agent::{Agent, Profile, Turn},
    engine::Setup,
    model::{ArtifactBuf, JsonObject, PartBuf, PartsBuf, TaskEvent, TaskState},
};
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{Gen, V1, V03, post, rpc, say},
    ws::{Sent, text},
};

/// One piece of an artifact.
#[derive(Clone, Debug)]
struct Piece {
    artifact: usize,
    text: String,
    form: Form,
    append: bool,
    last: bool,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    TextWithMetadata,
    EventWithMetadata,
    Named,
    TwoTexts,
    /// Its JSON has line breaks.
    Data,
}

const IDS: [&str; 3] = ["a", "answer", "\"quoted\" é\n"];
const DATA: &str = "{\"d\":\r\n[1,\n2]}";
const METADATA: &str = "{\"m\":\n1}";

impl Piece {
    fn parts(&self) -> PartsBuf {
        let parts = PartsBuf::new();
        match self.form {
            Form::Text | Form::EventWithMetadata | Form::Named => parts.text(&*self.text),
            Form::TextWithMetadata => parts
                .part(&PartBuf::text(&*self.text).metadata(JsonObject::parse(METADATA).unwrap())),
            Form::TwoTexts => parts.text(&*self.text).text("two"),
            Form::Data => parts.data(peregrine::model::Json::parse(DATA).unwrap()),
        }
    }

    fn publish(&self, turn: &mut Turn<'_>) {
        let mut artifact = ArtifactBuf::new(IDS[self.artifact], &self.parts());
        if let Form::Named = self.form {
            artifact = artifact.name("n");
        }
        let metadata = JsonObject::parse(METADATA).ok();
        turn.publish(&TaskEvent::Artifact {
            artifact: artifact.view(),
            append: self.append,
            last_chunk: self.last,
            metadata: metadata.filter(|_| matches!(self.form, Form::EventWithMetadata)),
        });
    }

    /// The artifact in the form of a generation, and the metadata of the event.
    fn seen(&self, generation: Gen) -> (Value, Value) {
        let of_text = |text: &str| match generation {
            V03 => json!({ "kind": "text", "text": text }),
            _ => json!({ "text": text }),
        };
        let mut part = of_text(&self.text);
        let mut artifact = json!({ "artifactId": IDS[self.artifact] });
        let mut metadata = Value::Null;
        match self.form {
            Form::Text | Form::TwoTexts => {}
            Form::TextWithMetadata => part["metadata"] = json!({ "m": 1 }),
            Form::EventWithMetadata => metadata = json!({ "m": 1 }),
            Form::Named => artifact["name"] = "n".into(),
            Form::Data => {
                part = json!({ "data": { "d": [1, 2] } });
                if generation == V03 {
                    part["kind"] = "data".into();
                }
            }
        }
        artifact["parts"] = match self.form {
            Form::TwoTexts => json!([part, of_text("two")]),
            _ => json!([part]),
        };
        (artifact, metadata)
    }

    fn assert_seen(&self, update: &Value, task: &Value, generation: Gen) {
        let (artifact, metadata) = self.seen(generation);
        assert_eq!(update["artifact"], artifact);
        assert_eq!(update["metadata"], metadata);
        assert_eq!(update["append"].as_bool().unwrap_or(false), self.append);
        assert_eq!(update["lastChunk"].as_bool().unwrap_or(false), self.last);
        assert_eq!(&update["taskId"], task);
        assert!(update["contextId"].is_string());
    }
}

/// Publishes its pieces.
struct Pieces(Vec<Piece>);

impl Agent for Pieces {
    fn start(&self, mut turn: Turn<'_>) {
        self.0.iter().for_each(|piece| piece.publish(&mut turn));
        turn.status(TaskState::Completed);
    }
}

fn assert_all_seen(pieces: &[Piece], results: &[Value], generation: Gen) {
    let id_of = |result: &Value| generation.task(result)["id"].clone();
    let task = id_of(&results[0]);
    let updates: Vec<&Value> = results
        .iter()
        .map(|result| if generation == V1 { &result["artifactUpdate"] } else { result })
        .filter(|update| update["artifact"].is_object())
        .collect();
    assert_eq!(updates.len(), pieces.len(), "{results:?}");
    for (piece, update) in pieces.iter().zip(updates) {
        piece.assert_seen(update, &task, generation);
    }
}

fn piece() -> impl Strategy<Value = Piece> {
    let form = prop_oneof![
        6 => Just(Form::Text),
        1 => Just(Form::TextWithMetadata),
        1 => Just(Form::EventWithMetadata),
        1 => Just(Form::Named),
        1 => Just(Form::TwoTexts),
        1 => Just(Form::Data),
    ];
    let text = prop_oneof![8 => "[ -~é\n\u{1}]{0,20}", 1 => Just("x".repeat(70_000))];
    (0..IDS.len(), text, form, any::<bool>(), any::<bool>()).prop_map(
        |(artifact, text, form, append, last)| Piece { artifact, text, form, append, last },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn stream_events_carry_the_published_content(pieces in vec(piece(), 1..12)) {
        let agent: Arc<dyn Agent> = Arc::new(Pieces(pieces.clone()));
        let agents = vec![(Profile::new("pieces", "Says pieces."), agent)];
        let mut lab = Lab::new(Setup { agents, ..Setup::default() });
        for generation in [V1, V03] {
            let call = rpc(generation.stream(), &generation.params(say("hi")));
            let reply = lab.ask(&post("/", &[], &call));
            let results: Vec<Value> =
                reply.events().iter().map(|event| event.data["result"].clone()).collect();
            assert_all_seen(&pieces, &results, generation);

            let peer = lab.socket("/", "");
            lab.write(peer, &text(&call));
            let mut sent: Vec<Value> = Vec::new();
            while !sent.last().is_some_and(|item| item["result"]["status"] == "stream_complete") {
                lab.pass(1);
                sent.extend(lab.frames(peer).iter().map(Sent::json));
            }
            let results: Vec<Value> = sent.iter().map(|item| item["result"].clone()).collect();
            assert_all_seen(&pieces, &results, generation);
        }
    }
}
