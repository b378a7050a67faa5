//! Streams over a connection that a proxy cuts.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use peregrine::client::{ClientBuilder, SendRequest, card::AgentCard};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{
    expected::{Outcome, Peer},
    talk::{Talk, at_each_of, builder, http_client, running},
};

/// Forwards connections to a server, and cuts each of the first `cuts` at a text.
struct CuttingProxy {
    port: u16,
    remaining: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
struct Cut {
    /// The text in a response at which it is cut.
    at: &'static [u8],
    /// True: before that text, in the middle of its event; false: after the whole read with it.
    is_inside: bool,
}

impl CuttingProxy {
    async fn start(server: String, cut: Cut, cuts: usize) -> CuttingProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let remaining = Arc::new(AtomicUsize::new(cuts));
        let shared = Arc::clone(&remaining);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(pass(client, server, cut, Arc::clone(&shared)));
            }
        });
        CuttingProxy { port, remaining }
    }
}

async fn pass(client: TcpStream, server: TcpStream, cut: Cut, remaining: Arc<AtomicUsize>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    });
    let mut bytes = vec![0; 1 << 16];
    while let Ok(got @ 1..) = from_server.read(&mut bytes).await {
        let got = &bytes[..got];
        let found = got.windows(cut.at.len()).position(|window| window == cut.at);
        let is_cut = found.is_some()
            && remaining
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |remaining| {
                    remaining.checked_sub(1)
                })
                .is_ok();
        let passed = found.filter(|_| is_cut && cut.is_inside).unwrap_or(got.len());
        if to_client.write_all(&got[..passed]).await.is_err() || is_cut {
            break;
        }
    }
    up.abort();
}

/// A client of the same interface with a card that points to the proxy.
async fn through(client: &Talk, peer: &Peer, port: u16) -> Talk {
    let url = client.interface().url;
    let server = format!("127.0.0.1:{}", url.origin.port());
    let card = client.card().raw_json().replace(&server, &format!("127.0.0.1:{port}"));
    let card = AgentCard::read(card.as_bytes()).unwrap();
    let builder: ClientBuilder = builder(peer.generation, peer.binding);
    builder.connect_over(http_client(), card, None).unwrap()
}

/// The steps in a stream of `slow 4`, and whether events may be missing or repeated.
fn steps_of(outcome: &Outcome) -> Result<(Vec<u32>, bool), String> {
    let mut steps = Vec::new();
    let mut has_gap = false;
    for item in &outcome.items {
        has_gap |= item.get("gap").is_some();
        let status = item.get("statusUpdate").or(item.get("task")).map(|update| &update["status"]);
        let words = status.and_then(|status| status.pointer("/message/parts/0/text"));
        let step = words.and_then(Value::as_str).and_then(|words| words.strip_prefix("step "));
        steps.extend(step.map(|step| step.parse::<u32>().unwrap()));
    }
    let last = outcome.items.last().and_then(|item| item.pointer("/statusUpdate/status/state"));
    let is_done = last.and_then(Value::as_str) == Some("TASK_STATE_COMPLETED");
    match is_done && outcome.error.is_none() && outcome.fault.is_none() && !outcome.is_cut {
        true => Ok((steps, has_gap)),
        false => Err(format!("must be whole and completed: {outcome:#?}")),
    }
}

fn resumes(cut: Cut, cuts: usize) {
    at_each_of(running().collect(), move |peer, client| async move {
        let server = format!("127.0.0.1:{}", client.interface().url.origin.port());
        let proxy = CuttingProxy::start(server, cut, cuts).await;
        let client = through(&client, &peer, proxy.port).await;
        let outcome = Outcome::of_stream(client.stream(&SendRequest::text("slow 4")).await).await;
        let (steps, has_gap) = steps_of(&outcome)?;
        let remaining = proxy.remaining.load(Ordering::SeqCst);
        if remaining != 0 {
            return Err(format!("{remaining} of {cuts} cuts did not happen"));
        }
        // Each step at most once; if one is missing, the stream reports a gap.
        let is_once = steps.windows(2).all(|two| two[0] < two[1]);
        let is_whole = steps == [0, 1, 2, 3];
        match is_once && (is_whole || has_gap) {
            true => Ok(()),
            false => Err(format!("{steps:?}, gap: {has_gap}: {:#?}", outcome.items)),
        }
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn stream_cut_between_events_resumes() {
    resumes(Cut { at: b"step 1", is_inside: false }, 1);
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn stream_cut_inside_an_event_resumes() {
    resumes(Cut { at: b"step 1", is_inside: true }, 1);
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn stream_cut_twice_resumes() {
    resumes(Cut { at: b"step ", is_inside: false }, 2);
}
