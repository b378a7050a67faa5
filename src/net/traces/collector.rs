//! The collector that receives spans.

use std::fmt;

use crate::{
    client::{ClientError, HttpOrigin, HttpUrl, UrlError, check_field},
    http::FieldLinesBuf,
};

use super::super::HttpClientOptions;

/// The path of traces below an endpoint (OTLP 1.x, "OTLP/HTTP Request").
const PATH: &str = "/v1/traces";

/// The default name of a service.
const SERVICE: &str = "peregrine";

/// An OpenTelemetry collector that accepts OTLP over HTTP with protocol buffers.
#[derive(Clone)]
pub struct TraceCollector {
    pub(super) url: HttpUrl,
    pub(super) fields: FieldLinesBuf,
    pub(super) service: String,
    pub(super) one_of: u32,
    pub(super) options: HttpClientOptions,
}

impl TraceCollector {
    /// The collector at this URL, such as `http://127.0.0.1:4318`, to which `/v1/traces` is added.
    /// The collector must use TLS or be on this machine.
    ///
    /// # Errors
    /// [`TraceCollectorError::Url`], [`TraceCollectorError::PlainHttp`].
    pub fn new(endpoint: &str) -> Result<TraceCollector, TraceCollectorError> {
        let collector = TraceCollector::over_plain_http(endpoint)?;
        let origin = &collector.url.origin;
        match origin.is_secure() || origin.is_loopback() {
            true => Ok(collector),
            false => Err(TraceCollectorError::PlainHttp),
        }
    }

    /// Like [`TraceCollector::new`], also on another machine without TLS: hosts on the network path
    /// can read the spans and the header fields.
    ///
    /// # Errors
    /// [`TraceCollectorError::Url`].
    pub fn over_plain_http(endpoint: &str) -> Result<TraceCollector, TraceCollectorError> {
        let mut url = HttpOrigin::parse(endpoint).map_err(TraceCollectorError::Url)?;
        if url.path.contains('?') {
            let why = "it must not have a query, as a path is appended".to_owned();
            return Err(TraceCollectorError::Url(UrlError::NotAUrl(why)));
        }
        url.path = format!("{}{PATH}", url.path.trim_end_matches('/'));
        let mut fields = FieldLinesBuf::default();
        fields.push("Content-Type", "application/x-protobuf");
        let (service, options) = (SERVICE.to_owned(), HttpClientOptions::default());
        Ok(TraceCollector { url, fields, service, one_of: 1, options })
    }

    /// Adds a header field to each message, such as a token. The value is never shown.
    ///
    /// # Errors
    /// [`TraceCollectorError::Field`]: the name is not a token (RFC 9110 §5.1) or is a field that
    /// the exporter writes itself, or the value has a non-ASCII byte or a control byte.
    pub fn field(mut self, name: &str, value: &str) -> Result<TraceCollector, TraceCollectorError> {
        let wrong = |_: ClientError| TraceCollectorError::Field(name.to_owned());
        check_field(name, value).map_err(wrong)?;
        self.fields.push(name, value);
        Ok(self)
    }

    /// Sets the name of the service (`service.name`); the default is `peregrine`.
    #[must_use]
    pub fn service_name(mut self, name: impl Into<String>) -> TraceCollector {
        self.service = name.into();
        self
    }

    /// Traces one in `one_of` calls without a caller's trace; 1, the default: every call, 0: none.
    /// For a call with a caller's trace, the caller decides.
    #[must_use]
    pub fn sample_one_of(mut self, one_of: u32) -> TraceCollector {
        self.one_of = one_of;
        self
    }

    /// Sets the options of the client for the collector: the trusted authorities, and the proxy.
    #[must_use]
    pub fn client(mut self, options: HttpClientOptions) -> TraceCollector {
        self.options = options;
        self
    }
}

impl fmt::Debug for TraceCollector {
    /// Values of fields are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.fields.get().iter().map(|(name, _)| name).collect();
        let mut debug = f.debug_struct("TraceCollector");
        debug.field("authority", &self.url.origin.authority()).field("path", &self.url.path);
        debug.field("fields", &names).field("service", &self.service).finish_non_exhaustive()
    }
}

/// Errors of the collector's configuration. `Debug` prints the same text as `Display`, so that
/// `main` can return the error.
#[derive(Clone, PartialEq, Eq)]
pub enum TraceCollectorError {
    /// The URL cannot be used.
    Url(UrlError),
    /// The collector is on another machine, and spans would be sent unencrypted.
    PlainHttp,
    /// The field cannot be added.
    Field(String),
}

impl fmt::Display for TraceCollectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceCollectorError::Url(error) => {
                write!(f, "cannot use the collector of traces: {error}")
            }
            TraceCollectorError::PlainHttp => f.write_str(
                "the collector of traces is on another machine and has no TLS: use https, or \
                 allow http (traces.plain_http, TraceCollector::over_plain_http)",
            ),
            TraceCollectorError::Field(name) => {
                write!(
                    f,
                    "{name:?} is not a field that can be added, or its value has invalid bytes"
                )
            }
        }
    }
}

impl fmt::Debug for TraceCollectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for TraceCollectorError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_requires_tls_unless_loopback_or_opted_out() {
        for (endpoint, path) in [
            ("http://127.0.0.1:4318", "/v1/traces"),
            ("http://localhost:4318/", "/v1/traces"),
            ("http://[::1]:4318/otlp/", "/otlp/v1/traces"),
            ("https://collector.example", "/v1/traces"),
        ] {
            assert_eq!(TraceCollector::new(endpoint).unwrap().url.path, path, "{endpoint}");
        }
        let plain = "http://collector.example:4318";
        assert_eq!(TraceCollector::new(plain).err(), Some(TraceCollectorError::PlainHttp));
        assert!(TraceCollector::over_plain_http(plain).is_ok());
        for wrong in ["", "collector:4318", "ftp://a", "https://u:p@a", "https://a/?b=c"] {
            let refused = TraceCollector::over_plain_http(wrong).err();
            assert!(matches!(refused, Some(TraceCollectorError::Url(_))), "{wrong}");
        }
    }

    #[test]
    fn collector_field_hides_value_and_rejects_reserved_names() {
        let collector = TraceCollector::new("https://a").unwrap();
        let with = collector.clone().field("Authorization", "Bearer hush-hush").unwrap();
        let text = format!("{with:?}");
        assert!(text.contains("Authorization") && !text.contains("hush-hush"), "{text}");
        for (name, value) in [("Host", "a"), ("content-type", "a"), ("a b", "c"), ("a", "\n")] {
            let refused = collector.clone().field(name, value).err();
            assert_eq!(refused, Some(TraceCollectorError::Field(name.to_owned())));
        }
    }
}
