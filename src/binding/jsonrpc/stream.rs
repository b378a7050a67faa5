//! Calls that are answered by a stream.

use super::{Desk, Ready};
use crate::{
    binding::{
        Handled,
        carrier::Carrier,
        envelope::Envelope,
        stream::{self, Framing, Pump},
    },
    dialect::Method,
    fault::{Fault, FaultKind},
    http::response,
    model::{Generation, Op, Reply},
    service::Outcome,
};

impl Desk<'_> {
    /// Opens a stream; what fails before its first event is an ordinary error (wire §3.5).
    pub(super) fn stream(&mut self, ready: &Ready<'_>) -> Handled {
        let known = ready.known();
        let Some(permit) = self.site.streams.permit(self.worker) else {
            return self.fault(known, &Fault::at_limit("streams_max"));
        };
        let framing = self.beside.framing();
        let close = self.close || framing == Framing::Bare;
        let start = self.out.len();
        if self.beside.carrier() == Carrier::Response {
            let http10 = framing == Framing::Bare;
            response::stream_head(self.out, &self.date, self.close, http10, b"");
        }
        match self.open_stream(ready, framing) {
            Ok(Outcome::Stream { cursor, generation }) => Handled::Stream(Box::new(Pump {
                cursor,
                id: Some(ready.id.into()),
                op: ready.method.op,
                history: ready.write_cx(self.now).history,
                wire: ready.method.wire_for(generation),
                framing,
                close,
                wrote_ms: self.now.mono_ms,
                permit,
            })),
            Ok(Outcome::Answered) => answered(close),
            Ok(Outcome::Pending(_)) => {
                self.out.truncate(start);
                self.fault(known, &Fault::new(FaultKind::Internal))
            }
            Err(fault) if self.refuses_by_stream(ready.method) => {
                let write = ready.write_cx(self.now);
                let (envelope, wire) = (Envelope::Rpc(ready.id), ready.method.wire);
                stream::only_error(self.out, framing, envelope, wire, &write, &fault);
                answered(close)
            }
            Err(fault) => {
                self.out.truncate(start);
                self.fault(known, &fault)
            }
        }
    }

    /// Wire §3.5: before 1.0 a resubscription is answered by a stream whatever happens, and its
    /// clients can read nothing else; those of some platforms never can.
    fn refuses_by_stream(&self, method: &Method) -> bool {
        let is_told = self.endpoint.dialect.quirks.stream_faults
            && self.beside.carrier() == Carrier::Response;
        method.wire.generation != Generation::V1
            && (is_told || (method.op == Op::Subscribe && self.beside.reads_only_streams()))
    }

    /// Calls the service; a direct message is written as a stream of one event (A2A 1.0 §3.1.2).
    fn open_stream(&mut self, ready: &Ready<'_>, framing: Framing) -> Result<Outcome, Fault> {
        self.ask(ready, |out, reply, write| {
            let Reply::Message { message, context_id } = *reply else { return };
            let (envelope, wire) = (Envelope::Rpc(ready.id), ready.method.wire);
            stream::only_message(out, framing, envelope, wire, write, (message, context_id));
        })
    }
}

fn answered(close: bool) -> Handled {
    if close { Handled::AnsweredLast } else { Handled::Answered }
}
