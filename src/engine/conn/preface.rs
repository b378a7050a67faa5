//! RFC 9113 §3.4: connections of clients with prior knowledge of HTTP/2.

use super::{Conn, Cx, State, Step};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of the head of a frame (RFC 9113 §4.1).
const FRAME_HEAD: usize = 9;

impl Conn {
    /// Examines the first bytes of a connection; `None`: they are not HTTP/2.
    pub(super) fn preface(&mut self, cx: &mut Cx<'_>, rest: &[u8], eof: bool) -> Option<Step> {
        if !cfg!(feature = "grpc") || !PREFACE.starts_with(&rest[..rest.len().min(PREFACE.len())]) {
            self.is_new = false;
            return None;
        }
        let begun = rest.get(PREFACE.len()..).unwrap_or_default();
        if let Some(head) = begun.first_chunk() {
            if begins_settings(head) {
                return Some(Step::Http2);
            }
            self.is_new = false;
            return None;
        }
        // The bytes may still become HTTP/1.1 or HTTP/2; the time limit of a head applies.
        if let State::Reading { scanned, .. } = &mut self.state
            && *scanned == 0
        {
            *scanned = 1;
            self.since_ms = cx.now.mono_ms;
        }
        Some(self.not_yet(cx, rest.len(), 0, eof))
    }
}

/// Whether the frame after the preface is SETTINGS. A peer that sends only the preface gets no
/// answer.
fn begins_settings(head: &[u8; FRAME_HEAD]) -> bool {
    const SETTINGS: u8 = 4;
    head[3] == SETTINGS && head[4] == 0 && head[5..] == [0; 4]
}
