//! gRPC: from the path and message of a call to the service, and from its answers to messages.
//!
//! Law: nothing here knows HTTP/2. A driver gives one whole request message and gets framed
//! messages, a call that waits, or a stream; what metadata says comes as plain values. Requests are
//! read straight into the call, answers written straight from the task.
//!
//! In scope: A2A 1.0 and 0.3, JSON in messages (a2a_rust), health, reflection. Out of scope:
//! compression, and services of anybody else.

mod card;
pub mod fields;
pub mod frame;
pub mod from_json;
pub mod health;
mod message;
mod parts;
pub mod read;
pub mod reflection;
mod rpcs;
pub mod status;
pub mod structs;
mod waiting;
pub mod write;

use std::{cell::Cell, task::Waker};

use crate::{
    binding::{
        CallScratch, DecodeBuffers, Endpoint, Scratch, ServerConfig, call::write_cx, cards,
        extensions, interfaces::Urls, jsonrpc::parse_fault, origin::Origin,
    },
    dialect::{Method, ReadCx, WriteCx, card::CardForm, version},
    fault::{Fault, FaultKind},
    json::Value,
    model::{Call, EventBuf, Generation, Reply, uuid},
    pb::{Fields, Writer},
    service::{
        AgentIndex, CallCx, Caller, Entropy, Now, Outcome, Peer, Scope, Service, StreamResponse,
    },
};

use fields::other::json_payload;
use read::{Asked, malformed};

pub use rpcs::{A2aRpc, Family, Rpc, SERVICES, rpc};
pub use status::{Code, Status};
pub use waiting::{Parked, Pump, Pumped};

/// What every answer is made with, whatever carries it.
pub struct Means<'x> {
    /// The waist.
    pub service: &'x dyn Service,
    /// Mounts, agents and settings.
    pub config: &'x ServerConfig,
    /// The worker's buffers.
    pub scratch: &'x mut Scratch,
    /// The answer.
    pub out: &'x mut Vec<u8>,
    /// The time.
    pub now: Now,
    /// Woken when a parked call or a stream may go on.
    pub wake: &'x Waker,
    /// What is known of the other side.
    pub peer: Peer<'x>,
}

/// One call: its message and what its metadata says.
pub struct Request<'r> {
    /// Which one.
    pub rpc: &'static A2aRpc,
    /// The request message without its frame.
    pub message: &'r [u8],
    /// `a2a-version`.
    pub version: Option<&'r [u8]>,
    /// `a2a-extensions`, comma separated.
    pub extensions: Option<&'r str>,
    /// `a2a-last-event-id`: the last event that a returning subscriber has seen.
    pub after: Option<u64>,
    /// `:authority`, for cards.
    pub authority: Option<&'r str>,
}

/// A call that was understood.
pub struct Called {
    /// What became of it.
    pub handled: Handled,
    /// The value of `a2a-extensions` in the answer's initial metadata.
    pub extensions: Option<String>,
}

/// What became of a call.
pub enum Handled {
    /// All its messages are written.
    Answered,
    /// It waits for its task.
    Parked(Box<Parked>),
    /// Its messages come from the pump.
    Stream(Box<Pump>),
}

/// Handles one call.
///
/// # Errors
/// A [`Fault`]; nothing was written then. [`Status::of`] says it in gRPC.
pub fn handle(means: &mut Means<'_>, request: &Request<'_>) -> Result<Called, Fault> {
    let rpc = request.rpc;
    let method = rpc.method()?;
    version::check(request.version, method.generation(), means.config.strict_version)?;
    let Scratch { decode, call, .. } = &mut *means.scratch;
    let DecodeBuffers { parser, pack, .. } = decode;
    let CallScratch { events, entropy, fresh_id, worker, .. } = call;
    let cx = ReadCx {
        op: method.op,
        limits: &means.config.limits,
        fresh_id: &fresh_id[..],
        after: request.after,
        task: None,
        tokens: Cell::new(means.config.limits.json_tokens_max),
    };
    let asked = match rpc.family {
        Family::V1 => read::call(&cx, Generation::V1, request.message, pack)?,
        Family::V03 => read::call(&cx, Generation::V03, request.message, pack)?,
        Family::Json => {
            // The envelope that JSON-RPC would have around the params.
            let depth_max = means.config.limits.json_depth_max + 1;
            let payload =
                parser.parse(payload(request.message)?, depth_max).map_err(parse_fault)?;
            json_call(&cx, method, payload, pack)?
        }
    };
    if matches!(&asked.call, Call::Send(send) if send.message.message_id().raw() == fresh_id) {
        *fresh_id = uuid(entropy.bits());
    }
    // A2A 1.0 §8.3.2: clients send the tenant of the interface they chose, and ours name agents.
    let named = Some(asked.tenant).filter(|name| !name.is_empty());
    let agent = named.and_then(|name| means.service.agent(name)).unwrap_or(AgentIndex(0));
    let profile = request.extensions.and_then(|_| means.service.profile(agent));
    let uris = profile
        .zip(request.extensions)
        .map(|(profile, asked)| extensions::in_effect(&profile, asked));
    let extensions = uris.filter(|uris| !uris.is_empty()).map(|uris| uris.join(", "));
    let mut ready = Ready {
        rpc,
        method,
        agent,
        worker: *worker,
        events,
        entropy: entropy.as_mut(),
        service: means.service,
        config: means.config,
        out: means.out,
        now: means.now,
        wake: means.wake,
        peer: means.peer,
        request,
    };
    let handled = match asked.call {
        Call::ExtendedCard => ready.card().map(|()| Handled::Answered),
        call if method.op.is_streaming() => ready.stream(call),
        call => ready.unary(call),
    }?;
    Ok(Called { handled, extensions })
}

/// A call that was understood, and the parts of its means side by side.
struct Ready<'d> {
    rpc: &'static A2aRpc,
    method: &'static Method,
    agent: AgentIndex,
    worker: usize,
    events: &'d mut EventBuf,
    entropy: &'d mut (dyn Entropy + Send),
    service: &'d dyn Service,
    config: &'d ServerConfig,
    out: &'d mut Vec<u8>,
    now: Now,
    wake: &'d Waker,
    peer: Peer<'d>,
    request: &'d Request<'d>,
}

impl Ready<'_> {
    fn unary(&mut self, call: Call<'_>) -> Result<Handled, Fault> {
        let write = write_cx(self.method, &call, self.now);
        let mut answer = Answer::begin(self.rpc, self.method, self.out);
        let start = answer.start;
        let outcome = self.ask(call, &mut |out, reply| answer.push(out, reply, &write));
        match outcome {
            Ok(Outcome::Answered) => {
                answer.finish(self.out);
                return Ok(Handled::Answered);
            }
            Ok(Outcome::Pending(wait)) => {
                self.out.truncate(start);
                let permit = self.config.parked.permit(self.worker);
                let permit = permit.ok_or_else(|| Fault::at_limit("connections_max"))?;
                let (rpc, method) = (self.rpc, self.method);
                return Ok(Handled::Parked(Box::new(Parked {
                    wait,
                    rpc,
                    method,
                    _permit: permit,
                })));
            }
            Ok(Outcome::Stream { .. }) | Err(_) => self.out.truncate(start),
        }
        Err(outcome.err().unwrap_or(FaultKind::Internal.into()))
    }

    fn stream(&mut self, call: Call<'_>) -> Result<Handled, Fault> {
        let permit = self.config.streams.permit(self.worker);
        let permit = permit.ok_or_else(|| Fault::at_limit("streams_max"))?;
        let write = write_cx(self.method, &call, self.now);
        let (rpc, method) = (self.rpc, self.method);
        let start = self.out.len();
        let outcome = self.ask(call, &mut |out, reply| {
            // A2A 1.0 §3.1.2: a direct message is a stream of one item.
            let Reply::Message { message, context_id } = reply else { return };
            let item = StreamResponse::Message { message, context_id };
            push_event(rpc, method, out, &item, &write);
        });
        match outcome {
            Ok(Outcome::Answered) => Ok(Handled::Answered),
            Ok(Outcome::Stream { cursor, .. }) => {
                let next = cursor.seq + u64::from(!cursor.snapshot);
                let history = write.history;
                Ok(Handled::Stream(Box::new(Pump {
                    cursor,
                    rpc,
                    method,
                    history,
                    first: None,
                    next,
                    _permit: permit,
                })))
            }
            Ok(Outcome::Pending(_)) => {
                self.out.truncate(start);
                Err(FaultKind::Internal.into())
            }
            Err(fault) => {
                self.out.truncate(start);
                Err(fault)
            }
        }
    }

    fn ask(
        &mut self,
        call: Call<'_>,
        answer: &mut dyn FnMut(&mut Vec<u8>, Reply<'_>),
    ) -> Result<Outcome, Fault> {
        let out = &mut *self.out;
        let mut cx = CallCx {
            caller: Caller {
                scope: Scope::of(self.agent),
                worker: self.worker,
                extensions: self.request.extensions,
                identity: self.peer.identity,
            },
            now: self.now,
            wake: self.wake,
            entropy: self.entropy,
            events: self.events,
            held_bytes: &self.config.held_bytes,
        };
        self.service.call(&mut cx, call, &mut |reply| answer(out, reply))
    }

    /// A2A 1.0 §3.1.11; 0.3 clients ask for the card by the same operation.
    fn card(&mut self) -> Result<(), Fault> {
        if !self.config.extended_card && self.rpc.family != Family::V03 {
            let kind = FaultKind::UnsupportedOperation;
            return Err(Fault::because(kind, cards::NO_EXTENDED));
        }
        let endpoint = Endpoint::standard(self.agent);
        let missing = || Fault::new(FaultKind::ExtendedAgentCardNotConfigured);
        let profile = self.service.profile(self.agent).ok_or_else(missing)?;
        // The default agent answers at the root, the others under their names.
        let name = Some(&profile.name).filter(|_| self.agent.0 > 0);
        let base = name.map_or_else(String::new, |name| format!("/agents/{name}"));
        let is_secure = self.peer.is_secure;
        let origin =
            Origin { is_secure, host: self.request.authority.map(str::as_bytes), prefix: "" };
        let frame = frame::begin(self.out);
        match self.rpc.family {
            Family::Json => {
                let form = CardForm::ExtendedV1;
                let body = cards::body(&profile, self.config, &origin, endpoint, &base, form);
                Writer(self.out).bytes(json_payload::DATA, &body);
            }
            Family::V1 | Family::V03 => {
                let urls = Urls::new(self.config, &origin, (endpoint, &profile.name), &base);
                let interfaces = urls.interfaces(endpoint.dialect);
                let extended = self.config.extended_card;
                match self.rpc.family {
                    Family::V03 => card::v03(self.out, &profile, &interfaces, extended),
                    _ => card::v1(self.out, &profile, &interfaces, extended),
                }
            }
        }
        frame::finish(self.out, frame);
        Ok(())
    }
}

/// One response message on its way.
struct Answer {
    rpc: &'static A2aRpc,
    method: &'static Method,
    /// Where its frame begins.
    start: usize,
    frame: frame::Frame,
    payload: Option<crate::pb::Nested>,
}

impl Answer {
    fn begin(rpc: &'static A2aRpc, method: &'static Method, out: &mut Vec<u8>) -> Answer {
        let start = out.len();
        let frame = frame::begin(out);
        let is_json = rpc.family == Family::Json;
        let payload = is_json.then(|| Writer(out).open(json_payload::DATA, JSON_GUESS));
        Answer { rpc, method, start, frame, payload }
    }

    fn push(&mut self, out: &mut Vec<u8>, reply: Reply<'_>, write: &WriteCx<'_>) {
        match self.rpc.family {
            Family::V1 => write::reply(out, Generation::V1, self.method.op, &reply),
            Family::V03 => write::reply(out, Generation::V03, self.method.op, &reply),
            Family::Json => (self.method.wire.encode.reply)(out, &reply, write),
        }
    }

    fn finish(self, out: &mut Vec<u8>) {
        if let Some(payload) = self.payload {
            Writer(out).close(payload);
        }
        frame::finish(out, self.frame);
    }
}

/// Bytes of JSON that most answers have.
const JSON_GUESS: usize = 512;

/// Appends one item of a stream as a framed message; false: there is nothing to say about it.
fn push_event(
    rpc: &A2aRpc,
    method: &Method,
    out: &mut Vec<u8>,
    item: &StreamResponse<'_>,
    write: &WriteCx<'_>,
) -> bool {
    let frame = frame::begin(out);
    let is_written = match rpc.family {
        Family::V1 => write::event(out, Generation::V1, item, write.history),
        Family::V03 => write::event(out, Generation::V03, item, write.history),
        Family::Json => {
            let payload = Writer(out).open(json_payload::DATA, JSON_GUESS);
            let is_written = (method.wire.encode.event)(out, item, write);
            Writer(out).close(payload);
            is_written
        }
    };
    match is_written {
        true => frame::finish(out, frame),
        false => frame::cancel(out, frame),
    }
    is_written
}

/// The JSON in a `JsonPayload`; none is an empty object.
fn payload(message: &[u8]) -> Result<&[u8], Fault> {
    let mut data = &b"{}"[..];
    for field in Fields(message) {
        if let (json_payload::DATA, value) = field.map_err(malformed)? {
            data = value.bytes().map_err(malformed)?;
        }
    }
    Ok(data)
}

fn json_call<'p>(
    cx: &ReadCx<'_>,
    method: &Method,
    payload: Value<'p>,
    pack: &'p mut Vec<u8>,
) -> Result<Asked<'p>, Fault> {
    let tenant = payload.get("tenant").and_then(|tenant| tenant.string_raw_str());
    let call = (method.wire.decode)(cx, Some(payload), pack)?;
    Ok(Asked { call, tenant: tenant.unwrap_or_default() })
}
