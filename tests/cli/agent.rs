//! An agent with every outcome that a command can meet.

use std::path::PathBuf;

use crate::support::binary::Binary;

pub const RULES: &str = r#"
[agent]
name = "clerk"
description = "Ends in every way"

[[rule]]
text = "fail"
[[rule.step]]
status = "failed"
text = "It broke."

[[rule]]
text = "reject"
[[rule.step]]
status = "rejected"
text = "Not today."

[[rule]]
text = "ask"
[[rule.step]]
status = "input-required"
text = "What size?"

[[rule]]
text = "authorize"
[[rule.step]]
status = "auth-required"
text = "Who are you?"

[[rule]]
text = "large"
[[rule.step]]
artifact = "cup"
parts = [{ text = "one large coffee" }]
[[rule.step]]
status = "completed"

[[rule]]
text = "files"
[[rule.step]]
artifact = "bundle"
name = "the bundle"
parts = [
  { text = "first line\n\nthird line" },
  { data = '{"n": 1}' },
  { bytes = "aGVsbG8=", filename = "../../hello.txt", media_type = "text/plain" },
  { url = "https://files.example/big.bin" },
]
[[rule.step]]
status = "completed"

[[rule]]
text = "slow"
[[rule.step]]
status = "working"
[[rule.step]]
delay_ms = 400
artifact = "a"
parts = [{ text = "at last" }]
[[rule.step]]
status = "completed"

[[rule]]
text = "stall"
[[rule.step]]
status = "working"
text = "one moment"
[[rule.step]]
delay_ms = 600000
status = "completed"

[[rule]]
text = "never"
[[rule.step]]
status = "working"
[[rule.step]]
delay_ms = 600000
status = "completed"
"#;

/// A server with the clerk, and its URL.
pub struct Clerk {
    pub server: Binary,
    script: PathBuf,
}

impl Clerk {
    pub fn start(name: &str, flags: &[&str]) -> Clerk {
        let file = format!("peregrine-clerk-{name}-{}.toml", std::process::id());
        let script = std::env::temp_dir().join(file);
        std::fs::write(&script, RULES).unwrap();
        let agent = format!("script:{}", script.display());
        let mut all = vec!["--agent", &agent];
        all.extend(flags);
        Clerk { server: Binary::start(&all), script }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.script);
    }
}

/// A server with the echo agent, and its URL.
pub fn echo(flags: &[&str]) -> (Binary, String) {
    let server = Binary::start(flags);
    let url = format!("http://{}", server.addr());
    (server, url)
}
