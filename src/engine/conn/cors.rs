//! The page that sent a request, so that it can read why it is refused before it is handled.

use super::{Conn, Cx, Step};
use crate::{
    binding::ServerConfig,
    http::{Head, Reject},
};

impl Conn {
    /// Notes what is said to the page of a request, whose host is known.
    #[inline(always)]
    pub(super) fn note_page(&mut self, config: &ServerConfig, head: &Head<'_>) {
        if config.cors.is_on() {
            self.cors = config.cors.of(head);
        }
    }

    /// Refuses the head that begins here: it is none, or is too large itself or by its body.
    #[cold]
    pub(super) fn reject_head(&mut self, cx: &mut Cx<'_>, bytes: &[u8], reject: Reject) -> Step {
        self.cors = cx.engine.config.cors.of_refused(bytes);
        self.reject(cx, reject)
    }
}
