//! Calls that are answered by a stream of bare events.

use super::Desk;
use crate::{
    binding::{
        Handled,
        envelope::Envelope,
        stream::{self, Framing, Pump},
    },
    dialect::WriteCx,
    fault::{Fault, FaultKind},
    http::response,
    model::{Call, Reply},
    service::Outcome,
};

impl Desk<'_> {
    /// Opens a stream; what fails before its first event is an ordinary error (wire §3.5).
    pub(super) fn stream(mut self, call: Call<'_>) -> Result<Handled, Fault> {
        let permit = self
            .site
            .streams
            .permit(self.cx.caller.worker)
            .ok_or_else(|| Fault::at_limit("streams_max"))?;
        let framing = Framing::of(self.head.version());
        let close = self.close || framing == Framing::Bare;
        let history = if let Call::Send(send) = &call { send.history } else { None };
        let start = self.out.len();
        let http10 = framing == Framing::Bare;
        response::stream_head(self.out, &self.date, self.close, http10, b"");
        // A2A 1.0 §3.1.2: a direct message is a stream of one event.
        let opened = self.ask(call, |out, method, reply| {
            let Reply::Message { message, context_id } = reply else { return };
            let (wire, write) = (method.wire, WriteCx { history, ..WriteCx::new(method.op) });
            stream::only_message(out, framing, Envelope::Bare, wire, &write, (message, context_id));
        });
        match opened {
            Ok(Outcome::Stream { cursor, generation }) => Ok(Handled::Stream(Box::new(Pump {
                cursor,
                id: None,
                op: self.method.op,
                history,
                wire: self.method.wire_for(generation),
                framing,
                close,
                wrote_ms: self.cx.now.mono_ms,
                permit,
            }))),
            Ok(Outcome::Answered) if close => Ok(Handled::AnsweredLast),
            Ok(Outcome::Answered) => Ok(Handled::Answered),
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
}
