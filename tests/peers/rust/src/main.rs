//! The agent of the peers on two SDKs in Rust: prints their URLs as one line of JSON when both
//! listen.

mod official;
mod protocol;
mod words;

use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let urls = json!({"official": official::start().await, "protocol": protocol::start().await});
    println!("{urls}");
    std::future::pending().await
}
