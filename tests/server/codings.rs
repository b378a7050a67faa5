//! Compressed requests: gzip and deflate over HTTP/1.1 and HTTP/2, gzip over gRPC.

use std::{io::Write as _, sync::Arc};

use flate2::{
    Compression,
    write::{GzEncoder, ZlibEncoder},
};
use http::Request;
use prost::Message as _;
use serde_json::{Value, json};

use crate::{
    grpc_client::{Rig, run, say, v1},
    http2::{connect, fetch, rest},
    support::{binary::Tcp, callers::ByName, reply::Reply},
};

const SEND: &str = "/lf.a2a.v1.A2AService/SendMessage";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A message of this text, as JSON-RPC or as HTTP+JSON.
fn body(path: &str, text: &str) -> Vec<u8> {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
    let params = json!({ "message": message });
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
    if path == "/" { call } else { params }.to_string().into_bytes()
}

const PATHS: [&str; 2] = ["/", "/message:send"];

fn post(path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: test.example\r\nContent-Type: application/json\r\n\
         A2A-Version: 1.0\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// The reply to a request over a connection that then serves another one.
fn reply(rig: &Rig, request: &[u8]) -> Reply {
    let mut tcp = Tcp::to(rig.0.addrs()[0]);
    tcp.write(request);
    let reply = tcp.reply();
    if !reply.closes() {
        tcp.write(&post("/", "", &body("/", "after")));
        assert_eq!(tcp.reply().status, 200);
    }
    reply
}

/// Code and message of an error in either form.
fn error(reply: &Reply) -> (i64, String) {
    let error = &reply.json()["error"];
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

fn assert_text(answer: &Value, text: &str) {
    let task = answer.get("result").unwrap_or(answer)["task"].clone();
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], text, "{answer}");
}

#[test]
fn compressed_requests_are_decoded() {
    let rig = Rig::echo();
    // The longer ones need buffers of their own.
    for text in ["hello".to_owned(), "long ".repeat(30_000)] {
        for path in PATHS {
            let plain = body(path, &text);
            for (coding, content) in [
                ("gzip", gzip(&plain)),
                ("X-GZIP", gzip(&plain)),
                ("deflate", deflate(&plain)),
                ("identity, gzip", gzip(&plain)),
                ("identity", plain.clone()),
                ("", plain.clone()),
            ] {
                let field = format!("Content-Encoding: {coding}\r\n");
                let answer = reply(&rig, &post(path, &field, &content));
                assert_eq!(answer.status, 200, "{coding}: {}", answer.text());
                assert_eq!(answer.field("accept-encoding"), Some("gzip, deflate"));
                assert_text(&answer.json(), &text);
            }
            let packed = gzip(&plain);
            let chunked = format!(
                "POST {path} HTTP/1.1\r\nHost: test.example\r\nContent-Type: application/json\r\n\
                 A2A-Version: 1.0\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n\
                 {:x}\r\n",
                packed.len()
            );
            let chunked = [chunked.as_bytes(), &packed, b"\r\n0\r\n\r\n"].concat();
            assert_text(&reply(&rig, &chunked).json(), &text);
            run(async {
                let mut client = connect(rig.0.addrs()[0]).await;
                let request = Request::post(format!("http://test.example{path}"))
                    .header("content-type", "application/json")
                    .header("a2a-version", "1.0")
                    .header("content-encoding", "gzip");
                let answer = fetch(&mut client, request.body(()).unwrap(), &packed).await;
                let (_, content, _) = rest(answer).await;
                assert_text(&serde_json::from_slice(&content).unwrap(), &text);
            });
        }
    }
}

/// Once, also where the request names extensions, which are looked up again for the tenant's agent.
#[test]
fn accept_encoding_field_is_sent_once() {
    let rig = Rig::echo();
    let listed = |fields: &str, content: &[u8]| {
        let answer = reply(&rig, &post("/", fields, content));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.fields.iter().filter(|(name, _)| name == "Accept-Encoding").count()
    };
    let plain = body("/", "x");
    for more in ["", "A2A-Extensions: https://example.com/x\r\n"] {
        assert_eq!(listed(more, &plain), 0, "{more}");
        assert_eq!(
            listed(&format!("Content-Encoding: gzip\r\n{more}"), &gzip(&plain)),
            1,
            "{more}"
        );
    }
}

#[test]
fn unsupported_content_encoding_returns_415() {
    let rig = Rig::echo();
    for fields in [
        "Content-Encoding: br\r\n",
        "Content-Encoding: gzip, gzip\r\n",
        "Content-Encoding: gzip\r\nContent-Encoding: deflate\r\n",
    ] {
        for path in PATHS {
            let answer = reply(&rig, &post(path, fields, &gzip(&body(path, "x"))));
            assert_eq!(answer.status, 415, "{fields}{}", answer.text());
            assert_eq!(answer.field("accept-encoding"), Some("gzip, deflate"));
            assert!(error(&answer).1.contains("Content-Encoding"), "{}", answer.text());
        }
    }
}

#[test]
fn invalid_gzip_is_an_error_in_the_callers_dialect() {
    let rig = Rig::echo();
    for path in PATHS {
        let plain = body(path, "x");
        let whole = gzip(&plain);
        let cut = &whole[..whole.len() - 1];
        for content in [&plain, cut, &[&whole[..], b"more"].concat()] {
            let answer = reply(&rig, &post(path, "Content-Encoding: gzip\r\n", content));
            let (status, code) = if path == "/" { (200, -32700) } else { (400, 400) };
            assert_eq!((answer.status, error(&answer).0), (status, code), "{}", answer.text());
            assert_eq!(error(&answer).1, "the content is not valid gzip");
        }
    }
}

#[test]
fn decoded_body_over_body_bytes_max_is_refused() {
    let rig = Rig::limited(|limits| limits.body_bytes_max = 100_000);
    let bomb = gzip(&vec![b' '; 50_000_000]);
    assert!(bomb.len() < 100_000);
    for path in PATHS {
        let answer = reply(&rig, &post(path, "Content-Encoding: gzip\r\n", &bomb));
        assert_eq!(answer.status, 413, "{}", answer.text());
        let content = body(path, &"y".repeat(99_000));
        let answer = reply(&rig, &post(path, "Content-Encoding: gzip\r\n", &gzip(&content)));
        assert_eq!(answer.status, 200);
    }
}

#[test]
fn credential_is_checked_before_the_body_is_decoded() {
    let rig = Rig::with(|setup| setup.authenticator = Some(Arc::new(ByName::default())));
    for path in PATHS {
        let field = "Content-Encoding: gzip\r\n";
        assert_eq!(reply_once(&rig, &post(path, field, b"not gzip")).status, 401);
        let field = "Authorization: Bearer ann\r\nContent-Encoding: gzip\r\n";
        let answer = reply_once(&rig, &post(path, field, &gzip(&body(path, "x"))));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

fn reply_once(rig: &Rig, request: &[u8]) -> Reply {
    let mut tcp = Tcp::to(rig.0.addrs()[0]);
    tcp.write(request);
    tcp.reply()
}

/// A call over gRPC: `grpc-status` and the message of the answer, with its flag.
fn call(rig: &Rig, fields: &[(&str, &str)], flag: u8, message: &[u8]) -> GrpcAnswer {
    let framed = [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat();
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let mut request = Request::post(format!("http://test.example{SEND}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("a2a-version", "1.0");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let answer = fetch(&mut client, request.body(()).unwrap(), &framed).await;
        let (head, content, trailers) = rest(answer).await;
        assert_eq!(head["grpc-accept-encoding"], "identity,gzip");
        let value = |name: &str| {
            let value = trailers.get(name).or(head.get(name));
            value.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
        };
        let status = value("grpc-status").parse().unwrap();
        GrpcAnswer { status, why: value("grpc-message"), encoding: value("grpc-encoding"), content }
    })
}

struct GrpcAnswer {
    status: u32,
    why: String,
    encoding: String,
    content: Vec<u8>,
}

#[test]
fn gzip_grpc_messages_are_decoded() {
    let rig = Rig::limited(|limits| limits.body_bytes_max = 200_000);
    for text in ["hello".to_owned(), "long ".repeat(30_000)] {
        let packed = gzip(&say(&text).encode_to_vec());
        let answer = call(&rig, &[("grpc-encoding", "gzip")], 1, &packed);
        assert_eq!((answer.status, &*answer.encoding), (0, ""), "{}", answer.why);
        let answer = v1::SendMessageResponse::decode(&answer.content[5..]).unwrap();
        let task = crate::grpc_client::task(answer);
        assert_eq!(task.artifacts[0].parts[0], crate::grpc_client::text(&text));
    }
    let bomb = gzip(&vec![0; 50_000_000]);
    let packed = gzip(&say("x").encode_to_vec());
    let plain = say("x").encode_to_vec();
    for (encoding, flag, message, status) in [
        (Some("gzip"), 1, &bomb, 8),
        (Some("gzip"), 1, &plain, 13),
        (None, 1, &packed, 13),
        (Some("snappy"), 1, &packed, 12),
        // A message without compression.
        (Some("gzip"), 0, &plain, 0),
    ] {
        let fields: Vec<_> = encoding.map(|name| ("grpc-encoding", name)).into_iter().collect();
        let answer = call(&rig, &fields, flag, message);
        assert_eq!(answer.status, status, "{encoding:?}: {}", answer.why);
    }
}

#[test]
fn long_grpc_answers_are_gzipped_if_the_client_accepts() {
    let rig = Rig::echo();
    let accepts = ("grpc-accept-encoding", "identity, deflate, gzip");
    let long = "long ".repeat(10_000);
    for (text, fields, flag) in
        [(&*long, &[accepts][..], 1), (&*long, &[], 0), ("short", &[accepts], 0)]
    {
        let answer = call(&rig, fields, 0, &say(text).encode_to_vec());
        assert_eq!((answer.status, answer.content[0]), (0, flag), "{}", answer.why);
        assert_eq!(answer.encoding, if flag == 1 { "gzip" } else { "" });
        let mut message = answer.content[5..].to_vec();
        if flag == 1 {
            let mut decoder = flate2::write::GzDecoder::new(Vec::new());
            decoder.write_all(&message).unwrap();
            message = decoder.finish().unwrap();
        }
        let task = crate::grpc_client::task(v1::SendMessageResponse::decode(&*message).unwrap());
        assert_eq!(task.artifacts[0].parts[0], crate::grpc_client::text(text));
    }
}
