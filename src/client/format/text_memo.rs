//! Events that bring a text piece by piece, read by what they repeat.
//!
//! Law: what is read the short way is what the long way reads. An event that has the bytes of the
//! one before on both sides of its text, and between them what can stand in quotes, is that event
//! with another text, in whatever generation and dialect.

use crate::{
    json,
    model::{Received, received::TextUpdate},
};

use super::Format;

/// Bytes around the text of an event that is remembered.
const AROUND_BYTES_MAX: usize = 4 * 1024;

/// The event of a stream that brought a piece of text last.
#[derive(Default)]
pub(super) struct TextMemo {
    /// How the stream is spoken, and the id of its call; `None`: nothing is remembered.
    stream: Option<(Format, u64)>,
    before: Vec<u8>,
    behind: Vec<u8>,
    update: TextUpdate,
}

impl TextMemo {
    /// Reads an event that differs from the last one in its text alone; false: it has to be read
    /// whole, and nothing was received.
    pub fn read(&self, format: &Format, rpc_id: u64, data: &[u8], received: &mut Received) -> bool {
        let is_same = |(of, id): &(Format, u64)| *id == rpc_id && of.is_same(format);
        if !self.stream.as_ref().is_some_and(is_same) {
            return false;
        }
        let behind = data.strip_prefix(&*self.before);
        let text = behind.and_then(|rest| rest.strip_suffix(&*self.behind));
        let Some(text) = text.filter(|text| json::is_text(text)) else { return false };
        received.fill_text(&self.update, text);
        true
    }

    /// Remembers what was read of this data, if it is a piece of text.
    pub fn learn(&mut self, format: &Format, rpc_id: u64, data: &[u8], received: &Received) {
        let Some(text) = received.first_text() else { return };
        if data.len().saturating_sub(text.len()) > AROUND_BYTES_MAX {
            return;
        }
        // The text is one of the strings: the only one of its kind, unless it is a common word.
        let Some(start) = only_string(data, text) else { return };
        let is_split = self.update.split(received);
        self.stream = is_split.then_some((*format, rpc_id));
        self.before.clear();
        self.before.extend_from_slice(&data[..start]);
        self.behind.clear();
        self.behind.extend_from_slice(&data[start + text.len()..]);
    }
}

/// Where the only string of a document begins that is written like this, behind its quote; `None`
/// if there are several.
fn only_string(document: &[u8], text: &[u8]) -> Option<usize> {
    let (mut found, mut at) = (None, 0);
    while let Some(quote) = document[at..].iter().position(|byte| *byte == b'"') {
        let start = at + quote + 1;
        let string = string_at(&document[start..]);
        if string == text && found.replace(start).is_some() {
            return None;
        }
        at = (start + string.len() + 1).min(document.len());
    }
    found
}

/// What stands before the quote that ends a string.
fn string_at(rest: &[u8]) -> &[u8] {
    let mut is_escaped = false;
    let is_end = |byte: &u8| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    };
    let len = rest.iter().position(is_end).unwrap_or(rest.len());
    &rest[..len]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        client::FormatBuffers,
        model::{Generation, RawText},
    };

    const V1: Format = Format {
        binding: crate::binding::interfaces::Binding::JsonRpc,
        generation: Generation::V1,
        dialect: &crate::dialect::STANDARD,
    };

    fn event(text: &str) -> Vec<u8> {
        let artifact = format!(r#"{{"artifactId":"a","parts":[{{"text":"{text}"}}]}}"#);
        let update = format!(r#"{{"taskId":"t","artifact":{artifact},"append":true}}"#);
        let result = format!(r#"{{"artifactUpdate":{update}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":"7","result":{result}}}"#).into_bytes()
    }

    /// Reads the long way, and remembers.
    fn learned(text: &str) -> TextMemo {
        let (mut buffers, mut received) = (FormatBuffers::default(), Received::new());
        V1.read_item(&mut buffers, 7, &event(text), false, &mut received).unwrap();
        buffers.texts
    }

    #[test]
    fn what_differs_in_its_text_alone_is_read_the_short_way() {
        let memo = learned("one");
        for text in ["two", "", "t", r#"\"x\" \u00e9"#, "\u{e9}", "{}[],:", &"long ".repeat(99)] {
            let (data, mut received) = (event(text), Received::new());
            assert!(memo.read(&V1, 7, &data, &mut received), "{text}");
            let update = received.artifact_update().unwrap();
            assert_eq!(update.task_id, "t");
            let first = update.artifact.parts().next().unwrap().as_text();
            assert_eq!(first.map(RawText::raw), Some(text.as_bytes()));
            let span = received.span();
            assert!(data[span].starts_with(b"{\"artifactUpdate\""));
        }
    }

    #[test]
    fn what_differs_in_more_is_not() {
        let (memo, mut received) = (learned("one"), Received::new());
        for text in ["\"", "\\", "\n", "\\x", "\",\"text\":\"two"] {
            assert!(!memo.read(&V1, 7, &event(text), &mut received), "{text}");
        }
        assert!(!memo.read(&V1, 8, &event("two"), &mut received));
        let v03 = Format { generation: Generation::V03, ..V1 };
        assert!(!memo.read(&v03, 7, &event("two"), &mut received));
        let other = String::from_utf8(event("two")).unwrap().replace("true", "false");
        assert!(!memo.read(&V1, 7, other.as_bytes(), &mut received));
        assert!(!learned("artifactId").read(&V1, 7, &event("two"), &mut received));
    }
}
