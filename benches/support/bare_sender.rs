//! The floor of a delivery: connections that write prepared posts, each after the answer to the
//! last, on one tokio `current_thread` runtime.

use std::{future::poll_fn, io, pin::Pin, rc::Rc, task::ready};

use memchr::memmem::find;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    task::{LocalSet, spawn_local},
};

/// The number of posts in each of two rounds.
#[derive(Clone, Copy)]
pub struct Rounds {
    pub warm: usize,
    pub counted: usize,
}

/// Posts on as many connections, in two rounds; returns the growth of `cpu_ns` in the second one.
pub fn run(
    port: u16,
    connections: usize,
    posts: Vec<Vec<u8>>,
    rounds: Rounds,
    cpu_ns: fn() -> u64,
) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let posts = Rc::new(posts);
    LocalSet::new().block_on(&runtime, async {
        let mut streams = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            stream.set_nodelay(true).unwrap();
            streams.push(stream);
        }
        let streams = round(streams, &posts, rounds.warm).await;
        let before = cpu_ns();
        round(streams, &posts, rounds.counted).await;
        cpu_ns() - before
    })
}

/// This many posts, spread over the connections.
async fn round(streams: Vec<TcpStream>, posts: &Rc<Vec<Vec<u8>>>, count: usize) -> Vec<TcpStream> {
    let step = streams.len();
    let tasks = streams.into_iter().enumerate().map(|(first, mut stream)| {
        let posts = Rc::clone(posts);
        spawn_local(async move {
            let mut input = vec![0; 1 << 16];
            for at in (first..count).step_by(step) {
                deliver(&mut stream, &posts[at % posts.len()], &mut input).await.unwrap();
            }
            stream
        })
    });
    let mut streams = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        streams.push(task.await.unwrap());
    }
    streams
}

/// Writes a post, and reads its whole answer.
async fn deliver(stream: &mut TcpStream, post: &[u8], input: &mut [u8]) -> io::Result<()> {
    let (mut sent, mut filled) = (0, 0);
    poll_fn(|cx| {
        while sent < post.len() {
            sent += ready!(Pin::new(&mut *stream).poll_write(cx, &post[sent..]))?;
        }
        loop {
            let mut room = ReadBuf::new(&mut input[filled..]);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut room))?;
            match room.filled().len() {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()).into(),
                count => filled += count,
            }
            if is_whole(&input[..filled]) {
                return Ok(()).into();
            }
        }
    })
    .await
}

/// Whether a successful answer is complete.
fn is_whole(input: &[u8]) -> bool {
    let Some(head) = find(input, b"\r\n\r\n") else { return false };
    assert!(input.starts_with(b"HTTP/1.1 2"));
    let length = find(&input[..head], b"Content-Length: ").map_or(0, |at| {
        let digits = input[at + 16..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'))
    });
    input.len() >= head + 4 + length
}
