//! One item of a stream, in the form of each binding.

use super::scripted::{Piece, TASK, result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    JsonRpc,
    Rest,
    WebSocket,
    Grpc,
}

pub const ALL: [Over; 4] = [Over::JsonRpc, Over::Rest, Over::WebSocket, Over::Grpc];

/// One item of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    Task,
    /// An artifact of a task, with this many letters.
    Artifact(&'static str, usize),
    Garbage,
}

/// A field of protocol buffers with a length.
pub fn pb(number: u8, content: &[u8]) -> Vec<u8> {
    let (mut out, mut length) = (vec![number << 3 | 2], content.len());
    while length > 127 {
        out.push(length as u8 | 128);
        length >>= 7;
    }
    out.push(length as u8);
    [out.as_slice(), content].concat()
}

fn proto(kind: ItemKind) -> Vec<u8> {
    match kind {
        // WORKING is 2, after the key of the first field.
        ItemKind::Task => pb(1, &[pb(1, b"t"), pb(2, b"c"), pb(3, &[8, 2])].concat()),
        ItemKind::Artifact(task, letters) => {
            let part = pb(4, &pb(1, &vec![b'x'; letters]));
            let artifact = pb(3, &[pb(1, b"a"), part].concat());
            pb(4, &[pb(1, task.as_bytes()), pb(2, b"c"), artifact].concat())
        }
        ItemKind::Garbage => vec![0xff; 9],
    }
}

fn json(kind: ItemKind) -> String {
    match kind {
        ItemKind::Task => TASK.to_owned(),
        ItemKind::Artifact(task, letters) => {
            let text = "x".repeat(letters);
            let artifact = format!(r#"{{"artifactId":"a","parts":[{{"text":"{text}"}}]}}"#);
            let ids = format!(r#""taskId":"{task}","contextId":"c""#);
            format!(r#"{{"artifactUpdate":{{{ids},"artifact":{artifact}}}}}"#)
        }
        ItemKind::Garbage => "[{]".to_owned(),
    }
}

/// An item as sent in answer to call `id`.
pub fn item(over: Over, kind: ItemKind, id: u64) -> Vec<u8> {
    let response = || format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{}}}"#, json(kind));
    match over {
        Over::JsonRpc => format!("data: {}\n\n", response()).into_bytes(),
        Over::Rest => format!("data: {}\n\n", json(kind)).into_bytes(),
        Over::WebSocket => match result(id, &json(kind)) {
            Piece::Bytes(bytes) => bytes,
            _ => unreachable!("a frame"),
        },
        Over::Grpc => {
            let message = proto(kind);
            let length = (message.len() as u32).to_be_bytes();
            [&[0], length.as_slice(), &message].concat()
        }
    }
}

impl Over {
    pub fn binding(self) -> &'static str {
        match self {
            Over::JsonRpc => "JSONRPC",
            Over::Rest => "HTTP+JSON",
            Over::WebSocket => "WEBSOCKET",
            Over::Grpc => "GRPC",
        }
    }
}
