//! Header fields of a request, as agents that ask for some of them get them.

use std::{borrow::Cow, fmt, net::IpAddr};

use super::{trace::CallSpan, upstream::UpstreamLog};

/// A source of the header fields of a request: its head, or the metadata of a gRPC call.
pub trait FieldSource {
    /// Gives each value of a field to `each`; names are compared without regard to case.
    fn each_value<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8]));

    /// The address that the request came from, where it is known without the fields that say it.
    fn address(&self) -> Option<IpAddr> {
        None
    }

    /// The span of the call, if it is traced.
    fn span(&self) -> Option<CallSpan> {
        None
    }

    /// The place for what the log tells of the upstream, if the call has a line in a log.
    fn upstream_log(&self) -> Option<&UpstreamLog> {
        None
    }
}

/// The header fields of a request; there are none where they are unknown.
#[derive(Clone, Copy, Default)]
pub struct RequestFields<'a>(Option<&'a dyn FieldSource>);

impl<'a> RequestFields<'a> {
    /// The fields that `source` knows.
    pub fn of(source: &'a dyn FieldSource) -> RequestFields<'a> {
        RequestFields(Some(source))
    }

    /// The value of a field; several are one list (RFC 9110 §5.3). One that is no UTF-8 is none.
    pub fn value(self, name: &str) -> Option<Cow<'a, str>> {
        let mut found: Option<Cow<'a, str>> = None;
        self.0?.each_value(name, &mut |value| {
            let Ok(value) = str::from_utf8(value) else { return };
            match &mut found {
                None => found = Some(Cow::Borrowed(value)),
                Some(list) => {
                    let list = list.to_mut();
                    list.push_str(", ");
                    list.push_str(value);
                }
            }
        });
        found
    }

    /// Gives each value of a field to `each`, whatever bytes it has.
    pub fn each_value(self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        if let Some(source) = self.0 {
            source.each_value(name, each);
        }
    }

    /// The address that the request came from, where it is known without the fields that say it.
    pub fn address(self) -> Option<IpAddr> {
        self.0?.address()
    }

    /// The span of the call, if it is traced.
    pub fn span(self) -> Option<CallSpan> {
        self.0?.span()
    }

    /// The place for what the log tells of the upstream, if the call has a line in a log.
    pub fn upstream_log(self) -> Option<&'a UpstreamLog> {
        self.0?.upstream_log()
    }

    /// How often a field is there, whatever its values are: what a proxy says once is its word, and
    /// said twice it may be its client's.
    pub fn count(self, name: &str) -> usize {
        let mut count = 0;
        self.each_value(name, &mut |_| count += 1);
        count
    }
}

impl fmt::Debug for RequestFields<'_> {
    /// Values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestFields")
    }
}
