//! Pages about the server itself: whether it lives, whether it is ready, what it has counted.

/// A page about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerPage {
    /// `/healthz`: whether it lives.
    Health,
    /// `/readyz`: whether it should be sent calls.
    Ready,
    /// `/metrics`: what it has counted.
    Metrics,
}

impl ServerPage {
    /// The page at this path, to the letter: below it there is none.
    #[inline]
    pub fn at(path: &str) -> Option<ServerPage> {
        match path {
            "/healthz" => Some(ServerPage::Health),
            "/readyz" => Some(ServerPage::Ready),
            "/metrics" => Some(ServerPage::Metrics),
            _ => None,
        }
    }
}

/// How a page is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAnswer {
    /// The status of HTTP.
    pub status: u16,
    /// The media type.
    pub media: &'static str,
}

/// Whoever knows the server well enough to write its pages.
pub trait PageSource: Send + Sync {
    /// Whether the pages are served beside agents; otherwise where none are
    /// ([`Peer::is_admin`](super::Peer::is_admin)) and nowhere else.
    fn are_beside_agents(&self) -> bool;

    /// Appends a page; with details only if who asks may see them. `None`: there is none.
    fn write(&self, page: ServerPage, details: bool, out: &mut Vec<u8>) -> Option<PageAnswer>;
}
