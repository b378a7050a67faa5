//! The binary as its users run it: flags, the banner, exit codes and signals.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use crate::support::binary::{Binary, PATH, eventually};

pub fn connect(server: &Binary) -> TcpStream {
    server.connect().stream
}

fn output(args: &[&str]) -> Output {
    Command::new(PATH).args(args).output().unwrap()
}

/// Asserts the exit code, and one line on stderr that contains `text`.
fn assert_refused(args: &[&str], code: i32, text: &str) {
    let output = output(args);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {line}");
    assert!(line.contains(text) && line.lines().count() == 1, "{args:?}: {line}");
    assert!(output.stdout.is_empty());
}

pub fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: a.example\r\nContent-Type: application/json\r\n\
         A2A-Version: 1.0\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

fn send_message(text: &str) -> Vec<u8> {
    let message =
        format!(r#"{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}"#);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{message}}}}}"#
    );
    post("/", body.as_bytes())
}

/// Reads one response: its head and its body.
pub fn response(reader: &mut impl BufRead) -> (String, Vec<u8>) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "closed after {head:?}");
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.split("content-length:").nth(1).unwrap().lines().next().unwrap();
    let mut body = vec![0; length.trim().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    (head, body)
}

pub fn exchange(stream: &TcpStream, request: &[u8]) -> (String, Vec<u8>) {
    let mut stream = stream;
    stream.write_all(request).unwrap();
    response(&mut BufReader::new(stream))
}

#[test]
fn help_and_version_flags_print_text_and_exit_0() {
    let help = "Usage: peregrine";
    let version = concat!("peregrine ", env!("CARGO_PKG_VERSION"), "\n");
    for (flag, text) in
        [("--help", help), ("-h", help), ("--version", version), ("-v", version), ("-V", version)]
    {
        for args in [vec![flag], vec!["serve", flag]] {
            let output = output(&args);
            assert!(output.status.success() && output.stderr.is_empty());
            assert!(String::from_utf8(output.stdout).unwrap().contains(text), "{args:?}");
        }
    }
    let help_serve = output(&["help", "serve"]);
    assert!(help_serve.status.success());
    assert_eq!(help_serve.stdout, output(&["serve", "--help"]).stdout);
}

#[test]
fn invalid_flags_print_one_line_and_exit_2() {
    let script = std::env::temp_dir().join(format!("peregrine-{}.toml", std::process::id()));
    std::fs::write(&script, "[[rule]\nwhen = 3\n").unwrap();
    let bad_script = format!("script:{}", script.display());
    for (args, text) in [
        (vec![], "peregrine serve"),
        (vec!["srve"], "srve"),
        (vec!["serve", "--lisen", "x"], "did you mean --listen?"),
        (vec!["serve", "--limit", "body_byte_max=1"], "did you mean body_bytes_max?"),
        (vec!["serve", "--limit", "tasks_max=none"], "must be a whole number"),
        (vec!["serve", "--listen", "0.0.0.0:0"], "--allow-anonymous"),
        (vec!["serve", "--listen", "[::]:0"], "--allow-anonymous"),
        (vec!["serve", "--agent", "nope"], "nope"),
        (vec!["serve", "--agent", "script:/no/such/file"], "/no/such/file"),
        (vec!["serve", "--agent", &bad_script], ".toml"),
        (vec!["serve", "--listen", "[::1]:0", "--listen", "0.0.0.0:0"], "--allow-anonymous"),
        (vec!["serve", "--listen", "70000"], "must be an address and a port"),
        (vec!["serve", "--public-url", "example.org"], "not an http or https URL"),
        (vec!["serve", "--mount", "/x=standard", "--mount", "/x/=tutorial"], "two mounts"),
        (vec!["serve", "--mount", "/=standard", "--mount", "/=tutorial"], "two mounts"),
        (vec!["serve", "--listen", "127.0.0.1:0", "--mount", "/x=nope"], "nope"),
        (
            vec!["gateway", "localhost:9000"],
            "peregrine: \"localhost:9000\": the URL must begin with",
        ),
        (vec!["serve", "--agent", "a=a2a:b"], "--agent: \"b\": not an absolute URL"),
        (vec!["serve", "--listen", "127.0.0.1:0", "--mount", "/x=standard:bob"], "bob"),
    ] {
        assert_refused(&args, 2, text);
    }
    std::fs::remove_file(script).unwrap();
}

#[test]
fn port_in_use_prints_one_line_and_exits_1() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    for workers in ["1", "2"] {
        assert_refused(&["serve", "--listen", &addr, "--workers", workers], 1, "port is in use");
    }
    let server = Binary::start_plain(&["--workers", "2"]);
    let addr = server.addr().to_string();
    assert_refused(&["serve", "--listen", &addr], 1, "port is in use");
    // With two errors, the error of the flag comes first: another port would not help.
    assert_refused(&["serve", "--listen", &addr, "--mount", "/x=nope"], 2, "nope");
    assert_refused(
        &["serve", "--listen", &addr, "--agent", "a=echo", "--agent", "a=echo"],
        2,
        "two",
    );
}

#[test]
fn banner_command_completes_a_task() {
    let script = std::env::temp_dir().join(format!("peregrine-try-{}.toml", std::process::id()));
    std::fs::write(&script, SCRIPT).unwrap();
    let scripted = format!("script:{}", script.display());
    let v1 = "TASK_STATE_COMPLETED";
    for (flags, state) in [
        (&[][..], v1),
        (&["--strict-version", "--agent", "bob=echo"], v1),
        (&["--agent", &scripted, "--agent", "bob=echo"], v1),
        (
            &[
                "--agent",
                "echo",
                "--agent",
                &format!("bob={scripted}"),
                "--mount",
                "/=standard:bob",
            ],
            v1,
        ),
        (&["--mount", "/=a2a_rust"], v1),
        (&["--mount", "/=langsmith"], "\"completed\""),
        (&["--mount", "/=evo_ai"], "\"completed\""),
        (&["--mount", "/=tutorial"], "\"completed\""),
        (&["--mount", "/=rabbithole"], "\"completed\""),
        (&["--allow-anonymous", "--listen", "0.0.0.0:0", "--mount", "/x=langsmith"], v1),
    ] {
        let server = Binary::start_plain(flags);
        // A second time it works as well.
        for _ in 0..2 {
            let pasted = Command::new("sh").args(["-c", server.banner("try")]).output().unwrap();
            let answer = String::from_utf8(pasted.stdout).unwrap();
            let worked = answer.contains(state) && answer.contains("hello");
            assert!(worked, "{flags:?}: {}: {answer}", server.banner("try"));
            std::thread::sleep(Duration::from_millis(if flags.contains(&"/=rabbithole") {
                1_100
            } else {
                0
            }));
        }
    }
    std::fs::remove_file(script).unwrap();
}

/// An agent that requires its extension.
const SCRIPT: &str = r#"
[agent]
name = "scripted"

[[agent.extensions]]
uri = "https://a.example/needed"
required = true

[[rule]]
[[rule.step]]
status = "completed"
text = "hello yourself"
"#;

#[test]
fn the_banner_names_every_agent_and_mount() {
    let flags = ["--agent", "echo", "--agent", "bob=echo", "--mount", "/x=langsmith:bob"];
    let server = Binary::start_plain(&flags);
    let url = server.banner("url");
    assert!(server.banner("card").ends_with("/.well-known/agent-card.json"));
    assert!(server.banner("agent   echo").ends_with(&format!("{url}agents/echo")));
    assert!(server.banner("agent   bob").ends_with(&format!("{url}agents/bob")));
    assert!(server.banner("mount   langsmith bob").ends_with(&format!("{url}x/")));
    assert!(server.banner("memory").contains("at most"));
}

/// The call of the banner, run by a shell; the placeholders are replaced first.
fn run_banner_call(server: &Binary) -> Option<serde_json::Value> {
    let call = server.banner("try").replace("YOUR_KEY", KEY).replace("YOUR_TOKEN", KEY);
    let output = Command::new("sh").args(["-c", &call]).output().unwrap();
    // curl may be missing.
    (output.status.code() != Some(127)).then(|| {
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {call} {output:?}"))
    })
}

const KEY: &str = "a-key-of-thirty-two-letters-here";

#[test]
fn banner_command_gets_a_result_with_auth_and_mounts() {
    let folder = std::env::temp_dir().join(format!("peregrine-banner-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let key = format!("[[auth.api_keys]]\nname = \"alice\"\nkey = \"{KEY}\"\n");
    let with_key = config("key.toml", &key);
    let token = format!("[[auth.bearer_tokens]]\nname = \"alice\"\ntoken = \"{KEY}\"\n");
    let with_token = config("token.toml", &token);
    let tenants = format!("{key}tenants = [\"acme\", \"other\"]\n");
    let with_tenants = config("tenants.toml", &tenants);
    let mut cases = vec![
        vec![],
        vec!["--config", &with_key],
        vec!["--config", &with_token],
        vec!["--config", &with_tenants],
        vec!["--config", &with_key, "--mount", "/=langsmith"],
        vec!["--tenants", "acme,other"],
        vec!["--agent", "echo", "--agent", "bob=echo", "--mount", "/x=langsmith:bob"],
    ];
    let dialects = ["a2a_rust", "evo_ai", "fasta2a", "langsmith", "rabbithole", "tutorial"];
    let mounts: Vec<String> = dialects.iter().map(|name| format!("/={name}")).collect();
    cases.extend(mounts.iter().map(|mount| vec!["--mount", mount]));
    for flags in &cases {
        let server = Binary::start_plain(flags);
        let Some(answer) = run_banner_call(&server) else { return };
        assert!(answer["result"].is_object(), "{flags:?}: {} {answer}", server.banner("try"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn first_signal_lets_running_calls_complete() {
    for (signal, workers) in [("-TERM", "1"), ("-INT", "2")] {
        let mut server = Binary::start_plain(&["--workers", workers]);
        let idle = connect(&server);
        let mut busy = connect(&server);
        // Long enough for the signal to come before it ends.
        busy.write_all(&send_message("hold:1500:2")).unwrap();
        server.wait_for_tasks(1);
        server.signal(signal);
        server.wait_until_refused();
        let mut reader = BufReader::new(&busy);
        let (head, body) = response(&mut reader);
        assert!(head.to_ascii_lowercase().contains("connection: close"), "{head}");
        assert!(String::from_utf8(body).unwrap().contains("TASK_STATE_COMPLETED"));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        assert_eq!((&idle).read(&mut [0]).unwrap(), 0);
        drop((busy, idle));
        assert_eq!(server.exit_code(), Some(0));
    }
}

#[test]
fn drain_timeout_logs_waiting_calls_and_lost_tasks() {
    let path = std::env::temp_dir().join(format!("peregrine-drain-{}", std::process::id()));
    let stderr = File::create(&path).unwrap();
    let mut server = Binary::start_with(&["--limit", "drain_ms=200"], stderr.into());
    let mut busy = connect(&server);
    busy.write_all(&send_message("hold:60000:2")).unwrap();
    server.wait_for_tasks(1);
    server.signal("-TERM");
    // A waiting client gets `Retry-After` and the id of its task.
    let (head, body) = response(&mut BufReader::new(&busy));
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: 1"), "{head}");
    assert!(String::from_utf8(body).unwrap().contains(r#""metadata":{"taskId":""#));
    drop(busy);
    assert_eq!(server.exit_code(), Some(0));
    let text = std::fs::read_to_string(&path).unwrap();
    // On a busy machine the agent may block its worker, which is logged too.
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("held up")).collect();
    let [begin, end] = lines[..] else { panic!("{text}") };
    let message = |line: &str| -> String {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["message"].as_str().unwrap().to_owned()
    };
    let what = "1 waiting call, 0 streams, 1 open connection; 1 unfinished task";
    // On a busy machine the server may not have seen the end of the connection that requested
    // tasks.
    let begin = message(begin).replace("2 open connections", "1 open connection");
    assert_eq!(begin, format!("draining, for 0.2 s at most: {what}"));
    let what = "1 waiting call, 0 streams cut; 1 unfinished task lost";
    assert_eq!(message(end), format!("the drain timed out after 0.2 s: {what}"));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn second_signal_exits_immediately_with_1() {
    let mut server = Binary::start_plain(&["--workers", "2"]);
    let mut busy = connect(&server);
    busy.write_all(&send_message("hold:60000:2")).unwrap();
    server.wait_for_tasks(1);
    server.signal("-TERM");
    server.wait_until_refused();
    assert!(server.runs());
    server.signal("-INT");
    // A drain that completes exits with 0.
    assert_eq!(server.exit_code(), Some(1));
}

#[test]
fn sighup_without_tls_or_config_is_logged_and_ignored() {
    let path = std::env::temp_dir().join(format!("peregrine-hup-{}", std::process::id()));
    let mut server = Binary::start_with(&[], File::create(&path).unwrap().into());
    server.signal("-HUP");
    eventually("it says so", || {
        std::fs::read_to_string(&path).unwrap().contains("nothing to read again")
    });
    assert!(server.runs());
    server.assert_lives();
    std::fs::remove_file(path).unwrap();
}

/// ADR 0012; only Linux from 5.0 on has the line.
#[test]
fn huge_pages_are_off_unless_allocator_variable_is_set() {
    let usual = Binary::start(&[]).status("THP_enabled");
    assert!(usual.as_deref().is_none_or(|enabled| enabled == "0"), "{usual:?}");
    let configured = Binary::start_with_variable("MIMALLOC_ALLOW_THP", "1").status("THP_enabled");
    assert!(configured.as_deref().is_none_or(|enabled| enabled == "1"), "{configured:?}");
}

#[test]
fn the_extended_card_is_served_with_a_warning() {
    for (flags, is_warned) in [(vec!["--extended-card"], true), (vec![], false)] {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stderr-{is_warned}"));
        let server = Binary::start_with(&flags, File::create(&path).unwrap().into());
        let request = b"GET /extendedAgentCard HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let (head, _) = exchange(&connect(&server), request);
        assert_eq!(head.starts_with("HTTP/1.1 200 "), is_warned, "{head}");
        let stderr = std::fs::read_to_string(path).unwrap();
        let warnings = stderr.lines().filter(|line| line.contains("warning: --extended-card"));
        assert_eq!(warnings.count(), usize::from(is_warned), "{stderr}");
    }
}
