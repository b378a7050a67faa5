//! Opens a connection to an origin: socket, tunnel, TLS, and the version of HTTP.

use std::{future::poll_fn, io, sync::Arc};

use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{self, AlertDescription, ClientConfig},
};

use crate::{
    client::{HttpOrigin, HttpVersion, TransportError},
    http::FieldLinesBuf,
};

use super::{
    ClientState,
    dial::dial,
    link::Link,
    proxy::ProxyServer,
    tls::{server_name, transport_error},
};

/// A connection, with its HTTP version.
pub(super) enum OpenedLink {
    Http1(Link),
    Http2(Link),
}

/// Connects to an origin.
///
/// # Errors
/// [`TransportError`], of every kind that occurs before a response.
pub(super) async fn open(
    state: &ClientState,
    origin: &HttpOrigin,
    version: HttpVersion,
    due_ms: u64,
) -> Result<OpenedLink, TransportError> {
    let own_ms = state.clock.now_ms().saturating_add(state.limits.connect_ms);
    let due_ms = due_ms.min(own_ms);
    state.clock.within(due_ms, "connection", connect(state, origin, version, due_ms)).await
}

async fn connect(
    state: &ClientState,
    origin: &HttpOrigin,
    version: HttpVersion,
    due_ms: u64,
) -> Result<OpenedLink, TransportError> {
    if let Some(path) = &state.unix {
        let socket = UnixStream::connect(path).await;
        let socket = socket.map_err(|error| TransportError::Connect(error.to_string()))?;
        return Ok(match version {
            HttpVersion::Any | HttpVersion::Http1 => OpenedLink::Http1(Link::unix(socket)),
            HttpVersion::Http2 => OpenedLink::Http2(Link::unix(socket)),
        });
    }
    let socket = match state.proxies.of(origin) {
        None => dial(origin, &state.guard).await?,
        Some(proxy) => {
            let socket = dial(&proxy.origin, &state.guard).await.map_err(|error| match error {
                TransportError::Refused(why) => TransportError::Refused(why),
                other => TransportError::Proxy(other.to_string()),
            })?;
            // Plain HTTP/1.1 needs no tunnel, unless the request upgrades it.
            if !origin.is_secure() && version == HttpVersion::Any {
                return Ok(OpenedLink::Http1(Link::to_proxy(socket)));
            }
            tunnel(state, proxy, origin, socket, due_ms).await?
        }
    };
    if !origin.is_secure() {
        let link = Link::plain(socket);
        return Ok(match version {
            HttpVersion::Any | HttpVersion::Http1 => OpenedLink::Http1(link),
            HttpVersion::Http2 => OpenedLink::Http2(link),
        });
    }
    let session = shake_hands(state, origin, version, socket).await?;
    let is_http2 = session.get_ref().1.alpn_protocol() == Some(b"h2");
    match (is_http2, version) {
        (true, HttpVersion::Any | HttpVersion::Http2) => Ok(OpenedLink::Http2(Link::tls(session))),
        (false, HttpVersion::Http2) => Err(TransportError::NoHttp2),
        (true, HttpVersion::Http1) | (false, HttpVersion::Any | HttpVersion::Http1) => {
            Ok(OpenedLink::Http1(Link::tls(session)))
        }
    }
}

async fn shake_hands(
    state: &ClientState,
    origin: &HttpOrigin,
    version: HttpVersion,
    socket: TcpStream,
) -> Result<TlsStream<TcpStream>, TransportError> {
    let config = config(state, version).await?;
    let connected = TlsConnector::from(config).connect(server_name(origin)?, socket).await;
    connected.map_err(|error| match tls_error(&error) {
        // RFC 7301 §3.2: the server supports none of the offered protocols.
        Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol))
            if version == HttpVersion::Http2 =>
        {
            TransportError::NoHttp2
        }
        Some(_) => transport_error(&error),
        None => TransportError::Tls(format!("the connection ended during the handshake: {error}")),
    })
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// The configuration of TLS. The first call reads the authorities on a blocking thread.
async fn config(
    state: &ClientState,
    version: HttpVersion,
) -> Result<Arc<ClientConfig>, TransportError> {
    if state.tls.is_ready() {
        return state.tls.config(version);
    }
    let tls = Arc::clone(&state.tls);
    let read = tokio::task::spawn_blocking(move || tls.config(version)).await;
    read.map_err(|error| TransportError::Io(error.to_string()))?
}

/// Requests a tunnel from a proxy (RFC 9110 §9.3.6).
async fn tunnel(
    state: &ClientState,
    proxy: &ProxyServer,
    origin: &HttpOrigin,
    socket: TcpStream,
    due_ms: u64,
) -> Result<TcpStream, TransportError> {
    let failed = |why: &str| TransportError::Proxy(why.to_owned());
    let authority = format!("{}:{}", origin.host(), origin.port());
    let mut exchange = state.take_exchange();
    let fields = FieldLinesBuf::of(&[state.user_agent.get(), proxy.authorization.get()]);
    exchange.begin_connect(Link::plain(socket), &authority, fields.get())?;
    poll_fn(|cx| exchange.poll_head(cx, &[], due_ms, state.exchange_cx()))
        .await
        .map_err(|error| failed(&error.to_string()))?;
    let status = exchange.response.head().status();
    let link = match status {
        200..=299 => exchange.take_tunnel(),
        407 => return Err(failed("the proxy requires other credentials (status 407)")),
        other => return Err(failed(&format!("the proxy refused a tunnel (status {other})"))),
    };
    state.give_exchange(exchange);
    // In TLS and HTTP the client sends first, so bytes from the server are an error.
    link.and_then(Link::into_plain).ok_or_else(|| failed("the proxy sent bytes into the tunnel"))
}
