//! Header fields of a request, for agents that name some of them in their profiles.

use std::{borrow::Cow, fmt, net::IpAddr};

use super::{trace::CallSpan, upstream::UpstreamLog};

/// A source of the header fields of a request: its head, or the metadata of a gRPC call.
pub trait FieldSource {
    /// Passes each value of a field to `each`; names are compared case-insensitively.
    fn each_value<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8]));

    /// The client address of the request, if it is known without reading header fields.
    fn address(&self) -> Option<IpAddr> {
        None
    }

    /// The span of the call, if it is traced.
    fn span(&self) -> Option<CallSpan> {
        None
    }

    /// Receives the upstream's log data, if the call is logged.
    fn upstream_log(&self) -> Option<&UpstreamLog> {
        None
    }
}

/// The header fields of a request; empty if unknown.
#[derive(Clone, Copy, Default)]
pub struct RequestFields<'a>(Option<&'a dyn FieldSource>);

impl<'a> RequestFields<'a> {
    /// The fields of `source`.
    pub fn of(source: &'a dyn FieldSource) -> RequestFields<'a> {
        RequestFields(Some(source))
    }

    /// The value of a field; several values are joined to a list (RFC 9110 §5.3). A value that is
    /// not UTF-8 counts as absent.
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

    /// Passes each value of a field to `each`; a value may have any bytes.
    pub fn each_value(self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        if let Some(source) = self.0 {
            source.each_value(name, each);
        }
    }

    /// The client address of the request, if it is known without reading header fields.
    pub fn address(self) -> Option<IpAddr> {
        self.0?.address()
    }

    /// The span of the call, if it is traced.
    pub fn span(self) -> Option<CallSpan> {
        self.0?.span()
    }

    /// Receives the upstream's log data, if the call is logged.
    pub fn upstream_log(self) -> Option<&'a UpstreamLog> {
        self.0?.upstream_log()
    }

    /// How often a field occurs, with any values: if the field of a proxy occurs twice, one of them
    /// may come from the client.
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
