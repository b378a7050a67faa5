//! The transport of a connection's bytes: the socket itself, or a session on top of a socket.
//!
//! The driver is generic over the transport, so that a plain connection compiles without any
//! overhead. [`Transport::is_flushed`] reports bytes that a transport buffers; these count as
//! waiting output.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};

use crate::service::Peer;

/// A connected byte stream.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// The known data of the peer.
    fn peer(&self) -> Peer<'_>;

    /// True: the peer has ended its side or reset the connection, even with unread input.
    fn is_read_closed(&self) -> bool;

    /// False: the transport has accepted bytes that the socket has not; `poll_flush` sends them.
    fn is_flushed(&self) -> bool;

    /// Bytes of buffered output that are charged to the limit of all buffers.
    fn held_bytes(&self) -> usize;

    /// True: the shutdown sends a message, even to a peer that has closed its own side.
    fn sends_close_notify(&self) -> bool;

    /// Makes the close reset the connection, which frees the kernel's buffers.
    fn reset_on_close(&self);

    /// Writes as much as possible, as `poll_write` does.
    #[inline]
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, bytes)
    }
}

/// Reads once; ready: the number of bytes, 0 at the end.
pub(super) fn poll_read(
    stream: &mut (impl AsyncRead + Unpin),
    room: &mut [u8],
    cx: &mut Context<'_>,
) -> io::Result<Poll<usize>> {
    let mut buffer = ReadBuf::new(room);
    Ok(Pin::new(stream).poll_read(cx, &mut buffer)?.map(|()| buffer.filled().len()))
}

/// Writes until the stream is full; returns the number of accepted bytes.
#[inline]
pub(super) fn send(
    stream: &mut impl Transport,
    bytes: &[u8],
    cx: &mut Context<'_>,
) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.poll_send(cx, &bytes[sent..])? {
            Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(count) => sent += count,
            Poll::Pending => break,
        }
    }
    Ok(sent)
}

impl Transport for TcpStream {
    fn peer(&self) -> Peer<'_> {
        Peer::default()
    }

    fn is_read_closed(&self) -> bool {
        // Reads the known readiness flags, without waiting and without a system call.
        let ready = pin!(self.ready(Interest::READABLE));
        let ready = ready.poll(&mut Context::from_waker(Waker::noop()));
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn held_bytes(&self) -> usize {
        0
    }

    fn sends_close_notify(&self) -> bool {
        false
    }

    fn reset_on_close(&self) {
        // The option fails only on a closed socket.
        let _ = self.set_zero_linger();
    }

    /// Fast path: a socket usually has room, and then the runtime is not needed.
    #[inline]
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Pin::new(self).poll_write(cx, bytes)
            }
            sent => Poll::Ready(sent),
        }
    }
}

/// A Unix socket has no address, and only this machine can reach it.
impl Transport for UnixStream {
    fn peer(&self) -> Peer<'_> {
        Peer::default()
    }

    fn is_read_closed(&self) -> bool {
        let ready = pin!(self.ready(Interest::READABLE));
        let ready = ready.poll(&mut Context::from_waker(Waker::noop()));
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn held_bytes(&self) -> usize {
        0
    }

    fn sends_close_notify(&self) -> bool {
        false
    }

    /// A local socket has no data in flight that a reset could discard.
    fn reset_on_close(&self) {}
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        sync::Arc,
    };

    use tokio::io::ReadBuf;

    use crate::{
        agent::echo::Echo,
        engine::Setup,
        net::{
            drive::Drive,
            worker_state::{ConnectionPermit, WorkerState},
        },
    };

    use super::*;

    /// Passes bytes to its socket only when flushed, a few at a time.
    struct Lazy {
        stream: TcpStream,
        held: Vec<u8>,
    }

    impl Transport for Lazy {
        fn peer(&self) -> Peer<'_> {
            Peer::default()
        }

        fn is_read_closed(&self) -> bool {
            self.stream.is_read_closed()
        }

        fn is_flushed(&self) -> bool {
            self.held.is_empty()
        }

        fn held_bytes(&self) -> usize {
            self.held.len()
        }

        fn sends_close_notify(&self) -> bool {
            true
        }

        fn reset_on_close(&self) {
            self.stream.reset_on_close();
        }
    }

    impl AsyncRead for Lazy {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(cx, room)
        }
    }

    impl AsyncWrite for Lazy {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(16_384 - self.held.len());
            if count == 0 {
                return self.poll_flush(cx).map_ok(|()| 0);
            }
            self.held.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let Lazy { stream, held } = &mut *self;
            let count = held.len().min(1_000);
            if let Poll::Ready(count) = Pin::new(stream).poll_write(cx, &held[..count])? {
                held.drain(..count);
                cx.waker().wake_by_ref();
            }
            if self.held.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            assert!(self.held.is_empty(), "shut down before all output was flushed");
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }

    /// Serves one connection to its end.
    fn serve(listener: std::net::TcpListener) {
        let setup = Setup {
            agents: vec![(Echo::profile(), Arc::new(Echo))],
            test_echo: Some("/echo".to_owned()),
            ..Setup::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let local = WorkerState::for_test(setup, &runtime);
        runtime.block_on(async {
            let (stream, _) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let stream = TcpStream::from_std(stream).unwrap();
            Drive::new(
                Lazy { stream, held: Vec::new() },
                ConnectionPermit::take(&local, [127, 0, 0, 1].into()).unwrap(),
                0,
            )
            .await;
        });
        assert_eq!(local.open.get(), 0);
    }

    #[test]
    fn bytes_buffered_by_the_transport_are_flushed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = std::thread::spawn(|| serve(listener));
        let mut client = std::net::TcpStream::connect(addr).unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let body = "x".repeat(300_000);
        for (last, length) in [("keep-alive", 5), ("keep-alive", 20_000), ("close", 300_000)] {
            let head = "POST /echo HTTP/1.1\r\nHost: t\r\nConnection:";
            let rest = format!("{last}\r\nContent-Length: {length}\r\n\r\n{}", &body[..length]);
            client.write_all(format!("{head} {rest}").as_bytes()).unwrap();
            let mut answer = Vec::new();
            while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                answer.push(byte[0]);
            }
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
            client.read_exact(&mut vec![0; length]).unwrap();
        }
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        drop(client);
        server.join().unwrap();
    }
}
