//! The example agents for the load generator, on the official SDKs, under a small load.

use std::{
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// An agent process, killed on drop.
struct ExampleAgent {
    process: Child,
    url: String,
}

impl ExampleAgent {
    /// Starts a command with a port as its last argument, and waits for the port.
    fn start(mut command: Command) -> ExampleAgent {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = command.arg(port.to_string()).stdin(Stdio::null()).spawn().unwrap();
        let agent = ExampleAgent { process, url: format!("http://127.0.0.1:{port}") };
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return agent;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("the agent does not listen");
    }

    /// The report of a run of two seconds.
    fn bench(&self) -> Value {
        let scenario = "send=4,get=2,list=1,stream=2,cancel=1,resume=1,subscribe=1";
        let output = Command::new(env!("CARGO_BIN_EXE_peregrine"))
            .args(["bench", &self.url, "-o", "json", "--scenario", scenario, "--rate", "20"])
            .args(["--duration", "2s", "--warmup", "0s", "--subscribers", "3", "--hold", "1s"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["targets"][0].take()
    }
}

impl Drop for ExampleAgent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/bench").join(name)
}

fn agent_in_python() -> Command {
    let mut command = Command::new(peers().join(".venv-1/bin/python"));
    command.arg(example("agent.py"));
    command
}

fn agent_in_javascript() -> Command {
    // Node.js finds modules in the program's folder.
    let program = peers().join("node_modules/.bench-agent.mjs");
    std::fs::copy(example("agent.mjs"), &program).unwrap();
    let mut command = Command::new("node");
    command.arg(program);
    command
}

/// The agents in Rust, built first, if run.sh has the SDKs in Rust.
fn agents_in_rust() -> Vec<Command> {
    if std::env::var_os("PEERS_RUST").is_none() {
        return Vec::new();
    }
    let target = peers().join("rust/target");
    let built = Command::new("cargo")
        .args(["build", "--locked", "--quiet", "--manifest-path"])
        .arg(example("rust/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .unwrap();
    assert!(built.success());
    ["official", "protocol"].map(|name| Command::new(target.join("debug").join(name))).into()
}

#[test]
#[ignore = "needs the SDKs that tests/peers/run.sh installs"]
fn example_agents_run_without_bench_errors() {
    let agents = [agent_in_python(), agent_in_javascript()];
    for agent in agents.into_iter().chain(agents_in_rust()) {
        let target = ExampleAgent::start(agent).bench();
        assert_eq!(target["errors"], json!({}), "{:#}", target["error_examples"]);
        assert_eq!(target["requests"], 40);
    }
}
