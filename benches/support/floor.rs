//! The floor of the socket benches: a server that answers with fixed bytes, as a process of its own.

use crate::served::Served;

/// Starts this program again, as the floor of a request and an answer of these lengths.
pub fn start(request_bytes: usize, answer_bytes: usize) -> Served {
    let me = std::env::current_exe().unwrap();
    let sizes = [request_bytes.to_string(), answer_bytes.to_string()];
    Served::start(&[me.to_str().unwrap(), "floor", "PORT", &sizes[0], &sizes[1]])
}

/// Runs the floor until it is killed, if these arguments request it.
pub fn is_requested(args: &[String]) -> bool {
    let is_floor = args.first().is_some_and(|word| word == "floor");
    if is_floor {
        let number = |at: usize| args[at].parse::<usize>().expect("a number");
        serve(number(1) as u16, number(2), number(3));
    }
    is_floor
}

/// The floor: for every `request_bytes` of input, `answer_bytes` of output, one write for each
/// read.
fn serve(port: u16, request_bytes: usize, answer_bytes: usize) {
    use tokio::io::Interest;
    let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
    answer.resize(answer_bytes, b'x');
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let answer = answer.clone();
            tokio::task::spawn_local(async move {
                let (mut input, mut seen) = (vec![0; 1 << 16], 0);
                let mut output = Vec::new();
                loop {
                    stream.readable().await.unwrap();
                    match stream.try_read(&mut input) {
                        Ok(0) => return,
                        Ok(length) => seen += length,
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                        Err(_) => return,
                    }
                    output.clear();
                    for _ in 0..seen / request_bytes {
                        output.extend_from_slice(&answer);
                    }
                    seen %= request_bytes;
                    let mut sent = 0;
                    while sent < output.len() {
                        match stream.try_write(&output[sent..]) {
                            Ok(length) => sent += length,
                            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                                stream.ready(Interest::WRITABLE).await.unwrap();
                            }
                            Err(_) => return,
                        }
                    }
                }
            });
        }
    });
}
