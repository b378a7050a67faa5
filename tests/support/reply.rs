//! A strict reader of responses: unknown syntax is an error, not a guess.

use serde_json::Value;

/// One response, or the arrived part of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Names and values of the fields.
    pub fields: Vec<(String, String)>,
    /// The content, without chunk framing.
    pub body: Vec<u8>,
    /// False while a stream is open.
    pub complete: bool,
}

/// One server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its `id`.
    pub id: Option<u64>,
    /// Its `event`, if it is not a plain message.
    pub name: Option<String>,
    /// Its `data`.
    pub data: Value,
}

impl Event {
    /// Reads one block of a stream, without the empty line after it.
    pub fn parse(block: &str) -> Event {
        let mut event = Event { id: None, name: None, data: Value::Null };
        for line in block.split('\n') {
            let (name, value) = line.split_once(": ").expect(line);
            match name {
                "id" => assert!(event.id.replace(value.parse().expect(value)).is_none()),
                "event" => assert!(event.name.replace(value.to_owned()).is_none()),
                "data" => {
                    assert!(event.data.is_null(), "two data lines: {block}");
                    event.data = serde_json::from_str(value).expect(value);
                }
                other => panic!("an unknown line {other}: {block}"),
            }
        }
        event
    }

    /// The JSON-RPC result inside.
    pub fn result(&self) -> &Value {
        assert!(self.data.get("result").is_some(), "{}", self.data);
        &self.data["result"]
    }
}

impl Reply {
    /// Reads the response at the start of `bytes`; `None` if its head, or a body of known length,
    /// is incomplete. Returns the number of bytes it has.
    pub fn parse(bytes: &[u8], head_only: bool, ended: bool) -> Option<(Reply, usize)> {
        let head_end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..head_end]).expect("a head in UTF-8");
        let mut lines = head.split("\r\n");
        let status_line = lines.next().expect("a status line");
        let rest = status_line.strip_prefix("HTTP/1.1 ").expect(status_line);
        let status: u16 = rest[..3].parse().expect(status_line);
        assert!(rest.as_bytes()[3] == b' ' && rest.len() > 4, "{status_line}");
        let fields: Vec<(String, String)> = lines.map(field).collect();
        let mut reply = Reply { status, fields, body: Vec::new(), complete: true };
        let start = head_end + 4;
        if status == 100 {
            return Some((reply, start));
        }
        reply.check_head();
        let length = reply.field("content-length").map(|value| value.parse::<usize>());
        let is_chunked = reply.field("transfer-encoding") == Some("chunked");
        let has_body = !matches!(status, 204 | 304);
        assert!(has_body || (length.is_none() && !is_chunked), "{head}");
        if !has_body || head_only {
            return Some((reply, start));
        }
        let used = match length {
            Some(length) => {
                assert!(!is_chunked, "two framings: {head}");
                let length = length.expect("a length");
                reply.body = bytes.get(start..start + length)?.to_vec();
                length
            }
            None if is_chunked => {
                let (body, used, complete) = unchunk(&bytes[start..]);
                (reply.body, reply.complete) = (body, complete);
                used
            }
            None => {
                assert_eq!(reply.field("connection"), Some("close"), "no framing: {head}");
                (reply.body, reply.complete) = (bytes[start..].to_vec(), ended);
                reply.body.len()
            }
        };
        Some((reply, start + used))
    }

    /// Reads all responses of a connection; the last may be an open stream.
    pub fn parse_all(mut bytes: &[u8], ended: bool) -> Vec<Reply> {
        let mut replies = Vec::new();
        while !bytes.is_empty() {
            let Some((reply, used)) = Reply::parse(bytes, false, ended) else {
                panic!("a broken response: {}", bytes.escape_ascii());
            };
            bytes = &bytes[used..];
            let complete = reply.complete;
            replies.push(reply);
            if !complete {
                break;
            }
        }
        replies
    }

    /// RFC 9110 §6.6.1: a server with a clock sends Date; no field occurs twice.
    fn check_head(&self) {
        assert!(self.field("date").is_some_and(|date| date.ends_with(" GMT")), "{self:?}");
        for (index, (name, _)) in self.fields.iter().enumerate() {
            let same = |(other, _): &(String, String)| other.eq_ignore_ascii_case(name);
            assert!(!self.fields[..index].iter().any(same), "{name} twice");
        }
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// True if the response announces the close of the connection.
    pub fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }

    /// The content as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body in UTF-8")
    }

    /// The content as JSON, which the content type must state.
    pub fn json(&self) -> Value {
        assert_eq!(self.field("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The code of the JSON-RPC error inside.
    pub fn code(&self) -> i64 {
        let json = self.json();
        json["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {json}"))
    }

    /// The result of the JSON-RPC response inside.
    pub fn result(&self) -> Value {
        let mut json = self.json();
        assert!(json.get("result").is_some() && json.get("error").is_none(), "{json}");
        json["result"].take()
    }

    /// The events of a stream, without comments.
    pub fn events(&self) -> Vec<Event> {
        self.blocks().filter(|block| !block.starts_with(':')).map(Event::parse).collect()
    }

    /// The number of comments in a stream.
    pub fn comments(&self) -> usize {
        self.blocks().filter(|block| block.starts_with(':')).count()
    }

    fn blocks(&self) -> impl Iterator<Item = &str> {
        assert_eq!(self.field("content-type"), Some("text/event-stream"), "{}", self.text());
        let text = self.text();
        assert!(text.is_empty() || text.ends_with("\n\n"), "half an event: {text}");
        text.split_terminator("\n\n")
    }
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line.split_once(':').expect(line);
    assert!(!name.is_empty() && !name.contains(' '), "{line}");
    let value = value.strip_prefix(' ').expect(line);
    (name.to_owned(), value.trim_start_matches(' ').to_owned())
}

/// The data of the chunks at the start of `bytes`, their length, and whether the last one is
/// complete.
fn unchunk(bytes: &[u8]) -> (Vec<u8>, usize, bool) {
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let rest = &bytes[at..];
        let Some(line_end) = rest.windows(2).position(|two| two == b"\r\n") else {
            return (data, at, false);
        };
        let size = std::str::from_utf8(&rest[..line_end]).expect("a chunk size");
        assert!((1..=16).contains(&size.len()), "{size}");
        let size = usize::from_str_radix(size, 16).expect(size);
        let Some(chunk) = rest.get(line_end + 2..line_end + 2 + size + 2) else {
            return (data, at, false);
        };
        assert_eq!(&chunk[size..], b"\r\n");
        data.extend_from_slice(&chunk[..size]);
        at += line_end + 2 + size + 2;
        if size == 0 {
            return (data, at, true);
        }
    }
}
