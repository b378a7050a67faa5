//! The host that a request of HTTP/2 names. That of gRPC is checked here, as the engine checks that
//! of HTTP/1.1; everything else goes through the engine.

use std::rc::Rc;

use http::{header::HOST, request::Parts};

use crate::{
    binding::{
        grpc::{Code, Status},
        hosts,
    },
    http::{KEPT_HOST_BYTES_MAX, is_authority},
};

use super::Http2Shared;

/// RFC 9113 §8.3.1: `:authority` stands for `Host`; without it there is one `Host` at most.
pub(super) fn authorities(head: &Parts) -> impl Iterator<Item = &[u8]> {
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let hosts = authority.is_none().then(|| head.headers.get_all(HOST));
    authority.into_iter().chain(hosts.into_iter().flatten().map(|host| host.as_bytes()))
}

impl Http2Shared {
    /// The authority of a call, if it names one; refuses what is none, and a host that is not
    /// served here.
    ///
    /// An HTTP status would reach the caller of a gRPC client as UNKNOWN without a word, so both
    /// refusals are statuses of gRPC, of a kind that no client tries again.
    pub(super) fn served(&self, head: &Parts) -> Result<Option<Rc<str>>, Status> {
        let mut authorities = authorities(head);
        let Some(authority) = authorities.next() else { return Ok(None) };
        let invalid = || Status::new(Code::InvalidArgument, ":authority is not a host and port");
        if authorities.next().is_some() {
            return Err(invalid());
        }
        if let Some(last) = &*self.served.borrow()
            && last.as_bytes() == authority
        {
            return Ok(Some(Rc::clone(last)));
        }
        let text = std::str::from_utf8(authority).map_err(|_| invalid())?;
        // RFC 9113 §8.3.1: user information is no part of it.
        if !is_authority(authority) {
            return Err(invalid());
        }
        let (config, peer) = (&self.engine().config, self.peer());
        if config.hosts.are_checked(peer.is_loopback) && !config.hosts.know(text, peer.local) {
            return Err(Status::new(Code::PermissionDenied, hosts::REFUSAL));
        }
        let text: Rc<str> = text.into();
        if text.len() <= KEPT_HOST_BYTES_MAX {
            *self.served.borrow_mut() = Some(Rc::clone(&text));
        }
        Ok(Some(text))
    }
}
