//! A stream that resumes when its connection breaks: `cargo run --example stream --
//! http://127.0.0.1:3000 "stream:10"`.

use peregrine::{
    client::{Client, EventKind, SendRequest},
    model::TaskEvent,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "http://127.0.0.1:3000".to_owned());
    let text = args.next().unwrap_or_else(|| "stream:10".to_owned());

    let client = Client::discover(&url).await?;
    let mut stream = client.stream(&SendRequest::text(&text)).await?;
    while let Some(event) = stream.next().await {
        match event?.kind() {
            EventKind::Task(task) => println!("{}: {:?}", task.id(), task.status().state),
            EventKind::Message(message) => println!("{}", message.text()),
            EventKind::Change { change: TaskEvent::Artifact { artifact, .. }, .. } => {
                for part in artifact.parts() {
                    println!("{:?}", part.content());
                }
            }
            EventKind::Change { change: TaskEvent::Status { state, .. }, .. } => {
                println!("{state:?}");
            }
            EventKind::Change { change: TaskEvent::UserMessage { .. }, .. } => {}
            EventKind::Gap { after, .. } => println!("statuses may be missing after {after:?}"),
        }
    }
    Ok(())
}
