//! The last item of a stream: the next item usually differs from it in only one text.

use crate::{
    client::format::Format,
    json,
    model::{Received, received::ReceivedAround},
};

use super::{AnswerPattern, AnswerSource, FoundTexts};

/// An item without its text.
#[derive(Default)]
pub(super) struct LastItem {
    /// The format, and the id of the call; `None`: no item is stored.
    of: Option<(Format, u64)>,
    /// The bytes before the text; `after` holds the bytes after the text.
    before: Vec<u8>,
    after: Vec<u8>,
    /// The number of bytes before the result; `suffix_len`: after the result.
    start: usize,
    suffix_len: usize,
    received: ReceivedAround,
}

impl LastItem {
    /// Reads an item that equals this one except for its text. `None`: more differs, and nothing
    /// was received.
    #[inline]
    pub fn read(
        &self,
        format: &Format,
        rpc_id: u64,
        data: &[u8],
        received: &mut Received,
    ) -> Option<()> {
        let (of, id) = self.of.as_ref()?;
        if *id != rpc_id || !of.is_same(format) {
            return None;
        }
        let text = data.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        json::is_text(text).then_some(())?;
        received.fill_around(&self.received, text, self.start..data.len() - self.suffix_len);
        Some(())
    }

    /// Stores an item that a pattern has just received, if the only unrestricted text of the
    /// pattern occurs once in the result.
    pub fn take(
        &mut self,
        source: AnswerSource<'_>,
        data: &[u8],
        pattern: &AnswerPattern,
        found: &FoundTexts<'_>,
        received: &Received,
    ) {
        let Some(text) = pattern.only_text else { return };
        self.of = None;
        let len = found.texts[usize::from(text) % found.texts.len()].len();
        let (before, rest) = data.split_at(found.text_at);
        let suffix_len = data.len() - found.span.end;
        // The text must be inside the result.
        let is_inside = found.span.start <= before.len() && rest.len() >= len + suffix_len;
        if !is_inside || !pattern.received.around(text, received, &mut self.received) {
            return;
        }
        self.before.clear();
        self.before.extend_from_slice(before);
        self.after.clear();
        self.after.extend_from_slice(&rest[len..]);
        (self.start, self.suffix_len) = (found.span.start, suffix_len);
        self.of = Some((*source.format, source.rpc_id));
    }
}
