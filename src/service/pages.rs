//! Pages about the server itself: liveness, readiness and counters; and the operator's requests.

use std::net::IpAddr;

/// A page about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerPage {
    /// `/healthz`: liveness.
    Health,
    /// `/readyz`: readiness for calls.
    Ready,
    /// `/metrics`: the counters.
    Metrics,
}

impl ServerPage {
    /// The page at exactly this path.
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

/// The head of a page's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAnswer {
    /// The status of HTTP.
    pub status: u16,
    /// The media type.
    pub media: &'static str,
}

/// A request of the operator in addition to the pages; no other client can make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminRequest<'a> {
    /// The method.
    pub method: AdminMethod,
    /// The path, undecoded.
    pub path: &'a str,
    /// The query, without its `?`; empty: none.
    pub query: &'a str,
    /// The body of the request.
    pub content: &'a [u8],
    /// The address of the operator; `None`: a unix socket.
    pub peer: Option<IpAddr>,
    /// The authenticated operator, as tasks name their owners; `None`: no credential.
    pub operator: Option<&'a str>,
}

/// The methods of an admin resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminMethod {
    /// GET or HEAD: reads it.
    Get,
    /// POST: acts on it.
    Post,
    /// DELETE: removes it.
    Delete,
    /// Any other method, which is rejected: the error lists the allowed methods.
    Other,
}

/// The outcome of an [`AdminRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAnswer {
    /// The answer is written.
    Page(PageAnswer),
    /// The path only allows these methods.
    Allows(&'static [AdminMethod]),
    /// Unknown path.
    Nowhere,
}

/// Writes the pages of a server.
pub trait PageSource: Send + Sync {
    /// Whether the pages are also served next to the agents; otherwise only on the admin listener
    /// ([`Peer::is_admin`](super::Peer::is_admin)).
    fn are_beside_agents(&self) -> bool;

    /// Appends a page, with details only if the client may see them. `None`: the page does not
    /// exist.
    fn write(&self, page: ServerPage, details: bool, out: &mut Vec<u8>) -> Option<PageAnswer>;

    /// Handles a request of the operator in addition to the pages, and appends the answer's
    /// content. Called only for the admin listener ([`Peer::is_admin`](super::Peer::is_admin)), and
    /// never for a change that a browser page requests.
    fn administer(&self, request: AdminRequest<'_>, out: &mut Vec<u8>) -> AdminAnswer {
        let _ = (request, out);
        AdminAnswer::Nowhere
    }
}
