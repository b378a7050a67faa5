//! Properties of the WebSocket codec and of an upgraded connection, with seeds; the properties
//! themselves are in `ws.rs` and `conn.rs`. tungstenite is the oracle in both directions.

#[allow(dead_code, reason = "it also has the properties of HTTP")]
use std::io::{self, Read, Write};

use peregrine::ws::{OpCode, ReaderRules, WsEvent, client};
use proptest::prelude::*;
use tungstenite::{
    Error, Message, WebSocket,
    error::ProtocolError,
    protocol::{
        Role, WebSocketConfig,
        frame::{
            Frame, FrameHeader,
            coding::{Control, Data, OpCode as Code},
        },
    },
};

use super::{conn, ws};

/// A client's frame, valid or not.
#[derive(Clone, Debug)]
struct Sketch {
    fin: bool,
    reserved: u8,
    opcode: u8,
    mask: Option<[u8; 4]>,
    /// The number of length bytes after the second byte: 0, 2 or 8; raised if the length needs
    /// more.
    digits: usize,
    payload: Vec<u8>,
}

impl Sketch {
    fn bytes(&self) -> Vec<u8> {
        let first = u8::from(self.fin) << 7 | self.reserved << 4 | self.opcode;
        let masked = u8::from(self.mask.is_some()) << 7;
        let length = self.payload.len();
        let mut bytes = match (self.digits, length) {
            (0, 0..126) => vec![first, masked | length as u8],
            (0..3, 0..65_536) => vec![first, masked | 126],
            _ => vec![first, masked | 127],
        };
        let digits = [0, 2, 8][usize::from(bytes[1] & 127).saturating_sub(125)];
        bytes.extend_from_slice(&length.to_be_bytes()[8 - digits..]);
        bytes.extend(self.mask.iter().flatten());
        let mask = self.mask.unwrap_or_default();
        bytes.extend(self.payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        bytes
    }
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![Just(""), Just("a"), Just("é€𝄞"), Just("\u{3e8}"), Just("{}")];
    prop_oneof![
        3 => prop::collection::vec(text, 0..20).prop_map(|parts| parts.concat().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..140),
        1 => (990..1020_u16, "[a-z]{0,5}").prop_map(|(code, reason)| {
            [&code.to_be_bytes()[..], reason.as_bytes()].concat()
        }),
    ]
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let opcode = prop_oneof![
        4 => Just(1_u8), 3 => Just(0), 2 => Just(2), 2 => 9..11_u8, 1 => Just(8), 1 => 0..16_u8
    ];
    let reserved = prop_oneof![30 => Just(0_u8), 1 => 0..8_u8];
    let mask = prop::option::weighted(0.98, any::<[u8; 4]>());
    (any::<bool>(), reserved, opcode, mask, payload()).prop_map(
        |(fin, reserved, opcode, mask, payload)| Sketch {
            fin,
            reserved,
            opcode,
            mask,
            digits: 0,
            payload,
        },
    )
}

/// Sequences of mostly valid frames: each continues the fragments before it.
fn sketches() -> impl Strategy<Value = Vec<Sketch>> {
    (prop::collection::vec(sketch(), 0..12), prop::bool::weighted(0.8)).prop_map(
        |(mut all, mend)| {
            let mut is_open = false;
            for sketch in all.iter_mut().filter(|_| mend) {
                if sketch.opcode >= 8 {
                    sketch.fin = true;
                    sketch.payload.truncate(125);
                    continue;
                }
                sketch.opcode = if is_open { 0 } else { sketch.opcode.clamp(1, 2) };
                is_open = !sketch.fin;
            }
            all
        },
    )
}

/// A2A messages, some of which wait, in one frame or several.
fn calls() -> impl Strategy<Value = Vec<Sketch>> {
    let send_call = |method: &str, text: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}}}}}"#
        )
    };
    let task_call = |method: &str, more: &str| {
        let task = str::from_utf8(conn::TASK).unwrap();
        format!(
            r#"{{"jsonrpc":"2.0","id":"é","method":"{method}","params":{{"id":"{task}"{more}}}}}"#
        )
    };
    let call = prop::sample::select(vec![
        send_call("SendMessage", "hi"),
        send_call("SendMessage", "hold:7000:1"),
        send_call("SendMessage", "ping"),
        send_call("SendStreamingMessage", "stream:6"),
        send_call("SendStreamingMessage", "hold:12000:3"),
        task_call("GetTask", ""),
        task_call("CancelTask", ""),
        task_call("SubscribeToTask", r#","lastEventId":1"#),
        format!("[{},{}]", send_call("SendMessage", "hold:3000:1"), task_call("GetTask", "")),
        "{".to_owned(),
    ]);
    let sketch = |fin, opcode, payload: &[u8]| Sketch {
        fin,
        reserved: 0,
        opcode,
        mask: Some([0; 4]),
        digits: 0,
        payload: payload.to_vec(),
    };
    let message =
        (call, any::<prop::sample::Index>(), any::<bool>()).prop_map(move |(call, cut, is_cut)| {
            let (first, rest) = call.as_bytes().split_at(cut.index(call.len()));
            match is_cut {
                false => vec![sketch(true, 1, call.as_bytes())],
                true => vec![sketch(false, 1, first), sketch(true, 9, b"?"), sketch(true, 0, rest)],
            }
        });
    prop::collection::vec(message, 0..8).prop_map(|messages| messages.concat())
}

fn bytes_of(sketches: &[Sketch]) -> Vec<u8> {
    sketches.iter().flat_map(Sketch::bytes).collect()
}

/// Reads from `bytes` alone and discards written bytes.
struct Wire<'b>(&'b [u8]);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.read(buffer)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The messages that tungstenite reads as `role`; false: it refused some bytes.
fn oracle(bytes: &[u8], role: Role) -> (Vec<Message>, bool) {
    let config = WebSocketConfig::default();
    let mut socket = WebSocket::from_raw_socket(Wire(bytes), role, Some(config));
    let mut messages = Vec::new();
    loop {
        match socket.read() {
            Ok(message) => {
                let is_close = message.is_close();
                messages.push(message);
                if is_close {
                    return (messages, true);
                }
            }
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                return (messages, true);
            }
            Err(Error::Protocol(_) | Error::Utf8(_) | Error::Capacity(_)) => {
                return (messages, false);
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// The tungstenite message for an event of ours, without the content of close frames.
fn message(event: WsEvent, payload: Vec<u8>) -> Message {
    match event {
        WsEvent::Text => Message::text(String::from_utf8(payload).unwrap()),
        WsEvent::Binary => Message::binary(payload),
        WsEvent::Ping => Message::Ping(payload.into()),
        WsEvent::Pong => Message::Pong(payload.into()),
        WsEvent::Close(_) => Message::Close(None),
        WsEvent::Partial => unreachable!("nothing whole"),
    }
}

const WIDE: ReaderRules = ReaderRules {
    frame_bytes_max: 1 << 20,
    message_bytes_max: 1 << 20,
    binary: true,
    masked: true,
};

fn code(opcode: OpCode) -> Code {
    match opcode {
        OpCode::Text => Code::Data(Data::Text),
        OpCode::Binary => Code::Data(Data::Binary),
        OpCode::Continuation => Code::Data(Data::Continue),
        OpCode::Close => Code::Control(Control::Close),
        OpCode::Ping => Code::Control(Control::Ping),
        OpCode::Pong => Code::Control(Control::Pong),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn frames_read_the_same_however_they_are_cut(
        seed in any::<u8>(),
        mut sketches in sketches(),
        cut in any::<u16>(),
        longer in prop::option::weighted(0.3, (any::<prop::sample::Index>(), 2..9_usize)),
    ) {
        // RFC 6455 §5.2: a length has one form; tungstenite accepts any.
        if let Some((at, digits)) = longer.filter(|_| !sketches.is_empty()) {
            let at = at.index(sketches.len());
            sketches[at].digits = digits;
        }
        let mut bytes = [&[seed][..], &bytes_of(&sketches)].concat();
        bytes.truncate(bytes.len() - usize::from(cut) % bytes.len());
        ws::server_reads_frames_the_same_however_cut(&bytes);
        for sketch in &mut sketches {
            sketch.mask = None;
        }
        ws::client_reads_frames_the_same_however_cut(&[&[seed][..], &bytes_of(&sketches)].concat());
    }

    #[test]
    fn any_bytes_read_the_same_however_they_are_cut(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        ws::server_reads_frames_the_same_however_cut(&bytes);
        ws::client_reads_frames_the_same_however_cut(&bytes);
    }

    /// Our server and tungstenite read our client's frames alike.
    #[test]
    fn tungstenite_and_server_read_frames_of_the_client(
        messages in prop::collection::vec((any::<bool>(), 0..70_000_usize, any::<[u8; 4]>()), 0..4),
        ping in prop::collection::vec(any::<u8>(), 0..200),
        code in prop::option::of(3000..5000_u16),
    ) {
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        for (is_text, length, key) in messages {
            let mark = client::begin(&mut out);
            out.resize(out.len() + length, b'x');
            let opcode = if is_text { OpCode::Text } else { OpCode::Binary };
            client::finish(&mut out, mark, opcode, key);
            let payload = vec![b'x'; length];
            expected.push(match is_text {
                true => Message::text(String::from_utf8(payload).unwrap()),
                false => Message::binary(payload),
            });
            let canceled = client::begin(&mut out);
            out.push(b'y');
            client::cancel(&mut out, canceled);
        }
        client::control(&mut out, OpCode::Ping, &ping, [1, 2, 3, 4]);
        expected.push(Message::Ping(ping[..ping.len().min(125)].to_vec().into()));
        client::close(&mut out, code, [0; 4]);
        let (mut theirs, is_fine) = oracle(&out, Role::Server);
        let Some(Message::Close(last)) = theirs.pop() else { panic!("no close") };
        prop_assert_eq!(last.map(|last| u16::from(last.code)), code);
        prop_assert_eq!((&theirs, is_fine), (&expected, true));
        let (mut ours, error) = ws::read(&out, &WIDE, &mut || 1_000);
        let last = ours.pop().map(|(event, _)| event);
        prop_assert_eq!((last, error), (Some(WsEvent::Close(code)), None));
        prop_assert_eq!(ours.into_iter().map(|(event, payload)| message(event, payload)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn tungstenite_reads_the_same_messages(mut sketches in sketches(), from_server in any::<bool>()) {
        if from_server {
            let swap = |sketch: &mut Sketch| sketch.mask = sketch.mask.xor(Some([5; 4]));
            sketches.iter_mut().for_each(swap);
        }
        let bytes = bytes_of(&sketches);
        let role = if from_server { Role::Client } else { Role::Server };
        let rules = ReaderRules { masked: !from_server, ..WIDE };
        let (theirs, is_fine) = oracle(&bytes, role);
        let (mut ours, error) = ws::read(&bytes, &rules, &mut || usize::MAX);
        // Frames after a close frame are not read.
        if let Some(at) = ours.iter().position(|(event, _)| matches!(event, WsEvent::Close(_))) {
            ours.truncate(at + 1);
        }
        let ended = ours.last().is_some_and(|(event, _)| matches!(event, WsEvent::Close(_)));
        let error = error.filter(|_| !ended);
        let ours: Vec<Message> = ours
            .into_iter()
            .map(|(event, payload)| message(event, payload))
            .collect();
        // Close frames are compared by the test of their codes: tungstenite reads a bad code as
        // another one.
        let is_bad_close = error == Some(peregrine::ws::WsError::CloseCode);
        let mut theirs: Vec<Message> = theirs
            .into_iter()
            .map(|message| if message.is_close() { Message::Close(None) } else { message })
            .collect();
        if is_bad_close && theirs.last().is_some_and(Message::is_close) {
            theirs.pop();
            prop_assert_eq!(ours, theirs);
            return Ok(());
        }
        prop_assert_eq!(&ours, &theirs);
        prop_assert_eq!(error.is_none(), is_fine, "{:?}", error);
    }

    #[test]
    fn reader_accepts_messages_written_by_tungstenite(
        parts in prop::collection::vec(("[a-zé€]{0,80}", any::<[u8; 4]>()), 1..6),
        ping in payload(),
        long in 0..70_000_usize,
    ) {
        let mut bytes = Vec::new();
        let mut put = |text: &[u8], opcode: OpCode, fin: bool, mask: [u8; 4]| {
            let mut frame = match opcode {
                OpCode::Ping => Frame::ping(text.to_vec()),
                opcode => Frame::message(text.to_vec(), code(opcode), fin),
            };
            frame.header_mut().mask = Some(mask);
            let mut one = Vec::new();
            frame.format(&mut one).unwrap();
            bytes.extend_from_slice(&one);
        };
        let last = parts.len() - 1;
        let ping = &ping[..ping.len().min(125)];
        for (at, (text, mask)) in parts.iter().enumerate() {
            let opcode = if at == 0 { OpCode::Text } else { OpCode::Continuation };
            put(text.as_bytes(), opcode, at == last, *mask);
            if at == 0 {
                put(ping, OpCode::Ping, true, *mask);
            }
        }
        let large = vec![7; long];
        put(&large, OpCode::Binary, true, [9, 8, 7, 6]);
        let text: String = parts.iter().map(|(text, _)| text.as_str()).collect();
        let mut expected =
            vec![(WsEvent::Ping, ping.to_vec()), (WsEvent::Text, text.into_bytes())];
        if last == 0 {
            expected.swap(0, 1);
        }
        expected.push((WsEvent::Binary, large));
        prop_assert_eq!(ws::read(&bytes, &WIDE, &mut || usize::MAX), (expected.clone(), None));
        prop_assert_eq!(ws::read(&bytes, &WIDE, &mut || 1_000), (expected, None));
    }

    #[test]
    fn tungstenite_and_client_read_frames_of_the_server(
        messages in prop::collection::vec((any::<bool>(), 0..70_000_usize), 0..4),
        ping in prop::collection::vec(any::<u8>(), 0..200),
        close in prop::option::of((3000..5000_u16, "[a-z ]{0,40}")),
    ) {
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        for (is_text, length) in messages {
            let mark = peregrine::ws::begin(&mut out);
            out.resize(out.len() + length, b'x');
            let opcode = if is_text { OpCode::Text } else { OpCode::Binary };
            peregrine::ws::finish(&mut out, mark, opcode);
            let payload = vec![b'x'; length];
            expected.push(match is_text {
                true => Message::text(String::from_utf8(payload).unwrap()),
                false => Message::binary(payload),
            });
            let canceled = peregrine::ws::begin(&mut out);
            out.push(b'y');
            peregrine::ws::cancel(&mut out, canceled);
        }
        peregrine::ws::control(&mut out, OpCode::Ping, &ping);
        expected.push(Message::Ping(ping[..ping.len().min(125)].to_vec().into()));
        let (number, reason) = close.unwrap_or((1000, String::new()));
        peregrine::ws::close(&mut out, Some(number), &reason);
        let (mut theirs, is_fine) = oracle(&out, Role::Client);
        let Some(Message::Close(Some(last))) = theirs.pop() else { panic!("no close") };
        prop_assert_eq!((u16::from(last.code), last.reason.as_str()), (number, &*reason));
        prop_assert_eq!((&theirs, is_fine), (&expected, true));
        let rules = ReaderRules { masked: false, ..WIDE };
        let (mut ours, error) = ws::read(&out, &rules, &mut || 1_000);
        let last = ours.pop().map(|(event, _)| event);
        prop_assert_eq!((last, error), (Some(WsEvent::Close(Some(number))), None));
        prop_assert_eq!(ours.into_iter().map(|(event, payload)| message(event, payload)).collect::<Vec<_>>(), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn upgraded_connection_reads_the_same_however_cut(seed in any::<u8>(), calls in calls(), end in sketch()) {
        let bytes = [&[seed][..], &bytes_of(&calls), &end.bytes()].concat();
        conn::websocket_output_is_the_same_however_cut(&bytes);
    }
}

/// The oracle itself refuses invalid frames: an oracle that accepts everything would prove nothing.
#[test]
fn tungstenite_oracle_rejects_invalid_frames() {
    let bad = Sketch {
        fin: true,
        reserved: 0,
        opcode: 3,
        mask: Some([0; 4]),
        digits: 0,
        payload: Vec::new(),
    };
    assert_eq!(oracle(&bad.bytes(), Role::Server), (Vec::new(), false));
    let good = Sketch { opcode: 1, ..bad };
    assert_eq!(oracle(&good.bytes(), Role::Server), (vec![Message::text("")], true));
    let header = FrameHeader::default();
    assert!(header.is_final && ProtocolError::UnmaskedFrameFromClient.to_string().len() > 4);
}
