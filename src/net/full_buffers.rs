//! Tests: while all buffers are full, connections wait without being polled.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    io::Write,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::Waker,
    time::Duration,
};

use tokio::{io::AsyncReadExt, net::TcpStream, task::LocalSet};

use crate::{agent::echo::Echo, engine::Setup, limits::Limits};

use super::{
    drive::Drive,
    share::Share,
    worker_state::{ConnectionPermit, WorkerState},
};

const MB: usize = 1024 * 1024;

/// Serves a connection with a request for the card, first while the buffers are full, then until
/// the answer; returns the number of polls while they were full.
fn polls_while_full<F: Future<Output = ()>>(
    request: &[u8],
    drive: impl FnOnce(TcpStream, &Rc<WorkerState>) -> F,
) -> usize {
    let limits = Limits { buffers_bytes_max: 16 * MB, connections_max: 1024, ..Limits::default() };
    let agents = vec![(Echo::profile(), Arc::new(Echo) as _)];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = WorkerState::for_test(Setup { agents, limits, ..Setup::default() }, &runtime);
    let buffers = &local.server.buffers;
    let [mut cut, mut other] = [(); 2].map(|()| Share::default());
    assert!(buffers.charge(&mut cut, 10 * MB, 1, Waker::noop()));
    // The waker does nothing: the cut share is not notified, and the buffers stay full.
    assert!(buffers.charge(&mut other, 9 * MB, 1, Waker::noop()) && cut.is_cut());

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(request).unwrap();
    let (server, _) = listener.accept().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let [mut client, server] = [client, server].map(|stream| {
            stream.set_nonblocking(true).unwrap();
            TcpStream::from_std(stream).unwrap()
        });
        let (polls, mut driven) = (Cell::new(0), pin!(drive(server, &local)));
        let mut counted = poll_fn(|cx| {
            polls.set(polls.get() + 1);
            driven.as_mut().poll(cx)
        });
        // The connection has not ended.
        tokio::time::timeout(Duration::from_millis(500), &mut counted).await.unwrap_err();
        let polls_before = polls.get();
        buffers.release(&mut cut);
        let answer = async {
            let mut answer = Vec::new();
            while !answer.windows(8).any(|some| some == b"\"skills\"") {
                assert!(client.read_buf(&mut answer).await.unwrap() > 0);
            }
        };
        let answered = async {
            tokio::select! { () = counted => {}, () = answer => {} }
        };
        tokio::time::timeout(Duration::from_secs(20), answered).await.unwrap();
        buffers.release(&mut other);
        polls_before
    })
}

/// A task that wakes itself is polled tens of thousands of times.
const POLLS_MAX: usize = 100;

#[test]
fn http1_connection_is_rarely_polled_while_buffers_are_full() {
    let request = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: t\r\n\r\n";
    let polls = polls_while_full(request, |stream, local| {
        Drive::new(stream, ConnectionPermit::take(local, [127, 0, 0, 1].into()).unwrap(), 0)
    });
    assert!(polls <= POLLS_MAX, "{polls}");
}

#[cfg(feature = "grpc")]
#[test]
fn http2_connection_is_rarely_polled_while_buffers_are_full() {
    let mut request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let block = b"\x82\x86\x41\x01t\x04\x1c/.well-known/agent-card.json";
    request.extend([0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1]);
    request.extend_from_slice(block);
    let polls = polls_while_full(&request, |stream, local| {
        let permit = ConnectionPermit::take(local, [127, 0, 0, 1].into()).unwrap();
        let permit = super::http2::permit::Http2Permit::take(permit).ok().unwrap();
        super::http2::serve(stream, Vec::new(), permit, 0)
    });
    assert!(polls <= POLLS_MAX, "{polls}");
}
