//! A response that is sent repeatedly, in which only the date changes.
//!
//! Only for HTTP/1.1 on a persistent connection; other drivers create their response from the
//! fields and the content.

use super::{FieldLines, media, response};

/// A whole response with JSON under status 200.
pub struct ReadyResponse {
    bytes: Vec<u8>,
    content_at: usize,
}

impl ReadyResponse {
    /// The response with these fields and this content.
    pub fn new(fields: FieldLines<'_>, content: &[u8]) -> ReadyResponse {
        let mut bytes = Vec::new();
        let mark =
            response::begin(&mut bytes, 200, media::JSON, &[b' '; 29], fields.lines(), false);
        let content_at = bytes.len();
        bytes.extend_from_slice(content);
        response::finish(&mut bytes, mark);
        bytes.shrink_to_fit();
        ReadyResponse { bytes, content_at }
    }

    /// The content of the response.
    pub fn content(&self) -> &[u8] {
        &self.bytes[self.content_at..]
    }

    /// Appends the response with this date.
    #[inline]
    pub fn put(&self, out: &mut Vec<u8>, date: &[u8; 29]) {
        let date_at = out.len() + response::OK_DATE.len();
        out.extend_from_slice(&self.bytes);
        if let Some(blank) = out.get_mut(date_at..date_at + date.len()) {
            blank.copy_from_slice(date);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::field_lines;

    #[test]
    fn ready_response_equals_newly_written_response() {
        const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";
        let (fields, content) = (field_lines!("ETag": "\"x\""), b"{\"name\":\"echo\"}");
        let ready = ReadyResponse::new(fields, content);
        assert_eq!(ready.content(), content);
        let (mut once, mut anew) = (b"before".to_vec(), b"before".to_vec());
        ready.put(&mut once, DATE);
        let mark = response::begin(&mut anew, 200, media::JSON, DATE, fields.lines(), false);
        anew.extend_from_slice(content);
        response::finish(&mut anew, mark);
        assert_eq!(once.escape_ascii().to_string(), anew.escape_ascii().to_string());
    }
}
