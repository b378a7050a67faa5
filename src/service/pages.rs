//! Pages about the server itself: whether it lives, whether it is ready, what it has counted; and
//! what else its operator may ask of it.

use std::net::IpAddr;

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

/// What the operator asks for in addition to the pages, where no other client can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminRequest<'a> {
    /// What is to be done.
    pub method: AdminMethod,
    /// The path, as it came.
    pub path: &'a str,
    /// The query, without its `?`; empty: there is none.
    pub query: &'a str,
    /// The body of the request.
    pub content: &'a [u8],
    /// The address of the operator; `None`: a socket with a path.
    pub peer: Option<IpAddr>,
    /// The caller that the operator is, as tasks name their owners; `None`: it has shown no
    /// credential.
    pub operator: Option<&'a str>,
}

/// What may be done with what is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminMethod {
    /// GET, or HEAD: it is looked at.
    Get,
    /// POST: something is done with it.
    Post,
    /// DELETE: it is forgotten.
    Delete,
    /// Anything else, which is refused: the error names what may be done.
    Other,
}

/// What came of an [`AdminRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAnswer {
    /// It is written.
    Page(PageAnswer),
    /// At this path other methods would do: these.
    Allows(&'static [AdminMethod]),
    /// Nothing is at this path.
    Nowhere,
}

/// Writes the pages of a server.
pub trait PageSource: Send + Sync {
    /// Whether the pages are served beside agents; otherwise where none are
    /// ([`Peer::is_admin`](super::Peer::is_admin)) and nowhere else.
    fn are_beside_agents(&self) -> bool;

    /// Appends a page; with details only if the client may see them. `None`: there is none.
    fn write(&self, page: ServerPage, details: bool, out: &mut Vec<u8>) -> Option<PageAnswer>;

    /// Does what the operator asks for in addition to the pages, and appends what there is to
    /// say. It is asked on the listener that is there for them alone
    /// ([`Peer::is_admin`](super::Peer::is_admin)), and never for a page of a browser to change
    /// something.
    fn administer(&self, request: AdminRequest<'_>, out: &mut Vec<u8>) -> AdminAnswer {
        let _ = (request, out);
        AdminAnswer::Nowhere
    }
}
