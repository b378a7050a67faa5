//! The comparison for gRPC: a tonic server that answers every call with the same messages.
//!
//! It decodes nothing that it need not, stores nothing and has one thread, as the server has one
//! worker. There are two variants: `typed` does what a service made by tonic's generator does, with
//! prost on both sides and a message that it clones; `bytes` omits prost and the clone, which a
//! server that uses its messages could not.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::{
    Request, Response, Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::BoxFuture,
    server::{Grpc, NamedService, ServerStreamingService, UnaryService},
    transport::{Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;

use super::client::v1;

/// Bytes in front of every message.
const PREFIX: usize = 5;

/// The messages of a body.
pub fn messages(mut body: Bytes) -> Vec<Bytes> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        assert_eq!(body.get_u8(), 0, "not compressed");
        let length = body.get_u32() as usize;
        messages.push(body.split_to(length));
    }
    messages
}

/// A message after its five bytes.
pub fn framed(message: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.extend_from_slice(message);
    frame.into()
}

/// Answers every call with the same message.
#[derive(Clone)]
struct Same<M>(M);

impl<R, M: Clone> UnaryService<R> for Same<M> {
    type Response = M;
    type Future = Ready<Result<Response<M>, Status>>;

    fn call(&mut self, _: Request<R>) -> Self::Future {
        ready(Ok(Response::new(self.0.clone())))
    }
}

/// Answers every call with the same messages, one after another.
struct All<M>(Arc<[M]>);

impl<R, M: Clone + Send + Sync + 'static> ServerStreamingService<R> for All<M> {
    type Response = M;
    type ResponseStream = tokio_stream::Iter<Each<M>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, _: Request<R>) -> Self::Future {
        ready(Ok(Response::new(tokio_stream::iter(Each { all: Arc::clone(&self.0), at: 0 }))))
    }
}

struct Each<M> {
    all: Arc<[M]>,
    at: usize,
}

impl<M: Clone> Iterator for Each<M> {
    type Item = Result<M, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.all.get(self.at).cloned();
        self.at += 1;
        next.map(Ok)
    }
}

/// Messages as bytes.
#[derive(Clone, Copy, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.reserve(item.len());
        dst.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(src.copy_to_bytes(src.remaining())))
    }
}

/// The answer, as bytes and as values.
struct Answers {
    is_typed: bool,
    bytes: Arc<[Bytes]>,
    get: v1::Task,
    send: v1::SendMessageResponse,
    stream: Arc<[v1::StreamResponse]>,
}

#[derive(Clone)]
struct Floor(Arc<Answers>);

impl NamedService for Floor {
    const NAME: &'static str = "lf.a2a.v1.A2AService";
}

impl tonic::codegen::Service<http::Request<Body>> for Floor {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answers = Arc::clone(&self.0);
        Box::pin(async move {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default();
            let is_stream = name == "SendStreamingMessage";
            Ok(match (answers.is_typed, name) {
                (false, _) if is_stream => {
                    Grpc::new(Plain).server_streaming(All(answers.bytes.clone()), request).await
                }
                (false, _) => {
                    let same = Same(answers.bytes[0].clone());
                    Grpc::new(Plain).unary(same, request).await
                }
                (true, "GetTask") => {
                    type Get = ProstCodec<v1::Task, v1::GetTaskRequest>;
                    let same = Same(answers.get.clone());
                    Grpc::new(Get::default()).unary(same, request).await
                }
                (true, "SendMessage") => {
                    type Send = ProstCodec<v1::SendMessageResponse, v1::SendMessageRequest>;
                    let same = Same(answers.send.clone());
                    Grpc::new(Send::default()).unary(same, request).await
                }
                (true, _) => {
                    type Stream = ProstCodec<v1::StreamResponse, v1::SendMessageRequest>;
                    let all = All(answers.stream.clone());
                    Grpc::new(Stream::default()).server_streaming(all, request).await
                }
            })
        })
    }
}

/// Serves `body`, the answer to a call of `name`.
pub fn serve(port: u16, is_typed: bool, name: &str, body: Bytes) {
    let bytes: Arc<[Bytes]> = messages(body).into();
    let mut answers = Answers {
        is_typed,
        bytes: bytes.clone(),
        get: v1::Task::default(),
        send: v1::SendMessageResponse::default(),
        stream: Arc::new([]),
    };
    match name {
        "GetTask" => answers.get = Message::decode(bytes[0].clone()).expect("a task"),
        "SendMessage" => answers.send = Message::decode(bytes[0].clone()).expect("a response"),
        _ => {
            let events =
                bytes.iter().map(|bytes| Message::decode(bytes.clone()).expect("an event"));
            answers.stream = events.collect();
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let address: SocketAddr = ([127, 0, 0, 1], port).into();
        let incoming = TcpIncoming::bind(address).expect("a port").with_nodelay(Some(true));
        let server = Server::builder().add_service(Floor(Arc::new(answers)));
        server.serve_with_incoming(incoming).await.expect("a server");
    });
}
