//! A long task without a stream or a webhook: the client starts it, and polls it until it has ended
//! or asks for input: `cargo run --example poll -- http://127.0.0.1:3000 "hold:3000:2"`.

use std::time::Duration;

use peregrine::client::{Client, SendRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "http://127.0.0.1:3000".to_owned());
    let text = args.next().unwrap_or_else(|| "hold:3000:2".to_owned());

    let client = Client::discover(&url).await?;
    let begun = client.send(&SendRequest::text(&text).return_immediately()).await?;
    let Some(id) = begun.task_id().map(|id| id.to_str().into_owned()) else { return Ok(()) };
    loop {
        let answer = client.get_task(&id, Some(0)).await?;
        let Some(state) = answer.state() else { return Ok(()) };
        println!("{id}: {state:?}");
        if state.is_terminal() || state.is_interrupted() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
