//! Connects a socket to a host.
//!
//! Invariants: a name is resolved once for each connection, the guard checks all its addresses
//! before the first attempt, and only allowed addresses are used. A name with many addresses causes
//! a bounded number of attempts. The next attempt starts when the previous one has failed or has
//! had its head start, so a dead address delays a call but does not fail it (RFC 8305).

use std::{
    future::{Future, poll_fn},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

use crate::{
    client::{HttpOrigin, TransportError},
    net::tls::pem::one_line,
};

use super::options::ConnectGuard;

/// Maximum addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Maximum addresses of a name with a strict guard, which checks each of them.
const ADDRESSES_SHOWN_MAX: usize = 64;

/// How long an attempt runs before the next one starts in parallel (RFC 8305 §8: 250 ms).
const HEAD_START: Duration = Duration::from_millis(250);

/// When the system probes a silent peer, and after how many probes the connection fails. A stream
/// may be silent for hours, and only these probes detect that the peer has disappeared.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_EACH: Duration = Duration::from_secs(15);
const KEEPALIVE_TRIES: u32 = 4;

/// Connects to an origin's host; the caller limits the time.
///
/// # Errors
/// [`TransportError::Resolve`], [`TransportError::Refused`], [`TransportError::Connect`].
pub(super) async fn dial(
    origin: &HttpOrigin,
    guard: &ConnectGuard,
) -> Result<TcpStream, TransportError> {
    let addresses = allowed(origin, resolve(origin).await?, guard)?;
    connect_first(&in_turns(&addresses)).await
}

/// The addresses that the guard allows: at least one.
fn allowed(
    origin: &HttpOrigin,
    all: Vec<SocketAddr>,
    guard: &ConnectGuard,
) -> Result<Vec<SocketAddr>, TransportError> {
    if guard.is_strict() && all.len() > ADDRESSES_SHOWN_MAX {
        let why = format!("the host has more than {ADDRESSES_SHOWN_MAX} addresses");
        return Err(TransportError::Refused(why));
    }
    let (mut allowed, mut refused) = (Vec::new(), None);
    for address in all {
        match guard.check(origin, address) {
            Ok(()) => allowed.push(address),
            Err(why) => {
                let why = format!("{address}: {why}");
                if guard.is_strict() {
                    return Err(TransportError::Refused(why));
                }
                refused.get_or_insert(why);
            }
        }
    }
    match refused {
        Some(why) if allowed.is_empty() => Err(TransportError::Refused(why)),
        Some(_) | None => Ok(allowed),
    }
}

/// Returns at least one address.
async fn resolve(origin: &HttpOrigin) -> Result<Vec<SocketAddr>, TransportError> {
    let (name, port) = (origin.host_name(), origin.port());
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let unresolved = |why: &str| TransportError::Resolve(format!("{name}: {why}"));
    let found = lookup_host((name, port)).await.map_err(|e| unresolved(&one_line(&e)))?;
    let found: Vec<SocketAddr> = found.collect();
    if found.is_empty() { Err(unresolved("the host has no address")) } else { Ok(found) }
}

/// The addresses with alternating families, each family in the system's order, starting with the
/// family of the system's first address (RFC 8305 §4).
fn in_turns(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_first = |address: &&SocketAddr| address.is_ipv6() == addresses[0].is_ipv6();
    let mut preferred = addresses.iter().filter(is_first);
    let mut others = addresses.iter().filter(|address| !is_first(address));
    let mut ordered = Vec::new();
    loop {
        let before = ordered.len();
        ordered.extend(preferred.next());
        ordered.extend(others.next());
        if ordered.len() == before || ordered.len() >= ADDRESSES_MAX {
            ordered.truncate(ADDRESSES_MAX);
            return ordered;
        }
    }
}

type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Returns the first connection that succeeds, and ends the other attempts.
async fn connect_first(addresses: &[SocketAddr]) -> Result<TcpStream, TransportError> {
    let mut waiting = addresses.iter();
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut failed = String::new();
    let mut head_start = Box::pin(tokio::time::sleep(Duration::ZERO));
    poll_fn(|cx| {
        loop {
            let mut is_made = None;
            attempts.retain_mut(|attempt| match attempt.as_mut().poll(cx) {
                Poll::Pending => true,
                Poll::Ready(Ok(stream)) => {
                    is_made = Some(stream);
                    false
                }
                Poll::Ready(Err(error)) => {
                    failed = one_line(&error);
                    false
                }
            });
            if let Some(stream) = is_made {
                return Poll::Ready(Ok(stream));
            }
            if !attempts.is_empty() && head_start.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match waiting.next() {
                Some(address) => {
                    attempts.push(Box::pin(connect(*address)));
                    head_start.as_mut().reset(tokio::time::Instant::now() + HEAD_START);
                }
                None if attempts.is_empty() => {
                    let (first, why) = (addresses[0], std::mem::take(&mut failed));
                    return Poll::Ready(Err(TransportError::Connect(format!("{first}: {why}"))));
                }
                None => return Poll::Pending,
            }
        }
    })
    .await
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
    socket.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    let keepalive = keepalive.with_interval(KEEPALIVE_EACH).with_retries(KEEPALIVE_TRIES);
    // A system without the option has no keepalive; connections still work.
    let _ = SockRef::from(&socket).set_tcp_keepalive(&keepalive);
    socket.connect(address).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn address_families_alternate_up_to_a_limit() {
        let all = addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        let turns = addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]);
        assert_eq!(in_turns(&all), turns);
        let many = vec![all[0]; 100];
        assert_eq!(in_turns(&many).len(), ADDRESSES_MAX);
        assert_eq!(in_turns(&all[3..4]), all[3..4]);
    }

    /// Runs a future in its own runtime.
    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work)
    }

    #[test]
    fn a_dead_address_does_not_fail_a_call() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let alive = listener.local_addr().unwrap();
        // The listener is dropped, so its address refuses connections.
        let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let stream = run(connect_first(&[dead, dead, alive])).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), alive);
        assert!(stream.nodelay().unwrap());
        let error = run(connect_first(&[dead])).unwrap_err();
        assert!(matches!(error, TransportError::Connect(why) if why.contains("refused")));
    }

    #[test]
    fn guard_refusal_prevents_the_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let origin = HttpOrigin::parse(&url).unwrap().origin;
        let refused = ConnectGuard::new(|_, _| Err("it is private".to_owned()));
        for guard in [refused.clone(), refused.strict()] {
            let refused = run(dial(&origin, &guard)).unwrap_err();
            assert!(matches!(refused, TransportError::Refused(why) if why.contains("private")));
            assert!(listener.accept().is_err());
        }
        let same_port = ConnectGuard::new(|origin, address| {
            if origin.port() == address.port() { Ok(()) } else { Err(String::new()) }
        });
        for guard in [same_port.clone(), same_port.strict(), ConnectGuard::default()] {
            run(dial(&origin, &guard)).unwrap();
        }
    }

    #[test]
    fn bad_address_is_skipped_or_refused_by_strict_guard() {
        let origin = HttpOrigin::parse("https://mixed.example/").unwrap().origin;
        let (bad, good) = (addresses(&["10.0.0.1:443"])[0], addresses(&["9.9.9.9:443"])[0]);
        let is_good = move |_: &HttpOrigin, address| match address == bad {
            true => Err("it is private".to_owned()),
            false => Ok(()),
        };
        let guard = ConnectGuard::new(is_good);
        // The bad address may also follow more addresses than are tried.
        let mut many = vec![good; ADDRESSES_MAX];
        many.push(bad);
        for mixed in [vec![bad, good], vec![good, bad], many] {
            let remaining = allowed(&origin, mixed.clone(), &guard).unwrap();
            assert_eq!(remaining.len(), mixed.len() - 1);
            assert!(!remaining.contains(&bad));
            let refused = allowed(&origin, mixed, &guard.clone().strict()).unwrap_err();
            let why = "10.0.0.1:443: it is private".to_owned();
            assert_eq!(refused, TransportError::Refused(why));
        }
        assert_eq!(allowed(&origin, vec![good], &guard.clone().strict()), Ok(vec![good]));
        // A strict guard refuses a name with this many addresses.
        let many = vec![good; ADDRESSES_SHOWN_MAX + 1];
        assert!(allowed(&origin, many.clone(), &guard.clone().strict()).is_err());
        assert_eq!(allowed(&origin, many.clone(), &guard), Ok(many));
        assert!(allowed(&origin, vec![bad], &guard).is_err());
    }

    #[test]
    fn connect_guard_closure_may_capture_state() {
        let origin = HttpOrigin::parse("https://a.example/").unwrap().origin;
        let (sender, seen) = std::sync::mpsc::channel();
        let guard = ConnectGuard::new(move |origin, address| {
            sender.send((origin.clone(), address)).map_err(|error| error.to_string())
        });
        let all = addresses(&["1.1.1.1:443", "[::1]:443"]);
        assert_eq!(allowed(&origin, all.clone(), &guard.clone()).unwrap(), all);
        let all: Vec<_> = all.into_iter().map(|address| (origin.clone(), address)).collect();
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), all);
        assert_eq!(format!("{guard:?}"), "ConnectGuard");
    }

    #[test]
    fn unresolvable_host_returns_resolve_error() {
        let origin = HttpOrigin::parse("http://no.such.name.invalid/").unwrap().origin;
        let error = run(dial(&origin, &ConnectGuard::default())).unwrap_err();
        assert!(matches!(error, TransportError::Resolve(why) if why.contains("invalid")));
    }
}
