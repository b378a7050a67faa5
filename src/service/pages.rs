//! Pages about the server (liveness, readiness, counters), and other requests of the operator.

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

/// A request to the admin interface that is not a page; only the operator can send it.
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
    /// The authenticated operator ([`Principal::owner`](super::Principal::owner)); `None`: no
    /// credential.
    pub operator: Option<&'a str>,
}

/// The methods of an admin resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminMethod {
    /// GET or HEAD: reads the resource.
    Get,
    /// POST: performs an action.
    Post,
    /// DELETE: removes the resource.
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
    /// The path is unknown.
    Nowhere,
}

/// Writes the pages of a server.
pub trait PageSource: Send + Sync {
    /// Whether the listeners of the agents also serve the pages; otherwise only the admin listener
    /// does ([`Peer::is_admin`](super::Peer::is_admin)).
    fn are_on_agent_listeners(&self) -> bool;

    /// Appends a page, with details only if the client may see them. `None`: the page does not
    /// exist.
    fn write(&self, page: ServerPage, details: bool, out: &mut Vec<u8>) -> Option<PageAnswer>;

    /// Handles a request of the operator that is not a page, and appends the content of the answer.
    /// Called only for the admin listener ([`Peer::is_admin`](super::Peer::is_admin)), and never
    /// for a change that a web page requests.
    fn administer(&self, request: AdminRequest<'_>, out: &mut Vec<u8>) -> AdminAnswer {
        let _ = (request, out);
        AdminAnswer::Nowhere
    }
}
