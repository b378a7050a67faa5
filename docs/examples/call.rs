//! One call: `cargo run --example call -- http://127.0.0.1:3000 "hello"`.

use peregrine::client::{Client, SendRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "http://127.0.0.1:3000".to_owned());
    let text = args.next().unwrap_or_else(|| "hello".to_owned());

    let client = Client::discover(&url).await?;
    let answer = client.send(&SendRequest::text(&text)).await?;
    match (answer.task(), answer.message()) {
        (Some(task), _) => {
            println!("{}: {:?}", task.id(), task.status().state);
            for part in task.artifacts().flat_map(|artifact| artifact.parts()) {
                println!("{:?}", part.content());
            }
        }
        (None, Some(message)) => println!("{}", message.text()),
        (None, None) => {}
    }
    Ok(())
}
