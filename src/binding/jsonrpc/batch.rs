//! Batches: every element is a call of its own (JSON-RPC 2.0 §6).

use super::{
    Desk,
    fault::{Known, push_fault},
    read::Unready,
};
use crate::{
    binding::{
        Handled,
        parked::{ParkedCall, too_large},
    },
    fault::{Fault, FaultKind},
    json::Value,
    service::Outcome,
};

/// What became of one element of a batch.
enum Element {
    /// Its answer is written.
    Written,
    /// It needs no answer.
    Silent,
    /// It waits.
    Waits(ParkedCall),
}

impl Desk<'_> {
    /// Answers a batch (JSON-RPC 2.0 §6).
    pub(super) fn batch(&mut self, value: Value<'_>) -> Handled {
        let count = value.elements().take(self.site.limits.batch_calls_max + 1).count();
        if count == 0 || count > self.site.limits.batch_calls_max {
            let detail = if count == 0 { "the batch is empty" } else { "the batch is too long" };
            let fault = Fault::because(FaultKind::InvalidRequest, detail);
            return self.fault(Known::NOTHING, &fault);
        }
        let mark = self.begin();
        self.out.push(b'[');
        let (body_at, mut waiting) = (self.out.len(), Vec::new());
        let mut pack = std::mem::take(self.pack);
        for element in value.elements() {
            let at = self.out.len();
            if at > body_at {
                self.out.push(b',');
            }
            let is_full = at - body_at > self.site.limits.answer_bytes_max;
            match self.element(element, is_full, &mut pack) {
                Element::Written => {}
                Element::Silent => self.out.truncate(at),
                Element::Waits(call) => {
                    self.out.truncate(at);
                    waiting.push(call);
                }
            }
        }
        *self.pack = pack;
        if !waiting.is_empty() {
            let answers = self.out.split_off(body_at);
            mark.rollback(self.out);
            return self.park(Known::NOTHING, waiting, Some(answers));
        }
        if self.out.len() == body_at {
            mark.rollback(self.out);
            return self.no_content();
        }
        self.out.push(b']');
        mark.finish(self.out);
        Handled::Answered
    }

    /// Answers one element; a call whose answer would make the batch too large is not begun.
    fn element(&mut self, value: Value<'_>, is_full: bool, pack: &mut Vec<u8>) -> Element {
        let at = self.out.len();
        let (known, fault) = match self.read(value, true, pack) {
            Err(Unready::Silent) => return Element::Silent,
            Err(Unready::Refused(known, fault)) => (known, fault),
            Ok(ready) if ready.is_silent => {
                self.call_silently(&ready);
                return Element::Silent;
            }
            Ok(ready) if is_full => (ready.known(), too_large()),
            Ok(ready) => match self.call(&ready) {
                Ok(Outcome::Answered) => return Element::Written,
                Ok(Outcome::Pending(wait)) => {
                    let (id, method) = (Some(ready.id.into()), ready.method);
                    return Element::Waits(ParkedCall { wait, id, method });
                }
                Ok(Outcome::Stream { .. }) => (ready.known(), Fault::new(FaultKind::Internal)),
                Err(fault) => (ready.known(), fault),
            },
        };
        self.out.truncate(at);
        push_fault(self.out, self.endpoint.dialect, known, &fault);
        Element::Written
    }
}
