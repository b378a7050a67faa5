//! The configuration of a server as an operator writes it: `serve config`, the order of precedence,
//! and a running server with a changing file.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use boon::{Compiler, Draft, Schemas};
use rcgen::{KeyPair, PKCS_ED25519};
use serde_json::{Value, json};

use crate::{
    run::User,
    support::{
        ask::{OutgoingMessage, V1, get, post, rpc, say, text_of},
        binary::{Binary, eventually},
    },
};

/// The example of the documentation.
const EXAMPLE: &str = include_str!("../../docs/peregrine.toml");

/// The output and exit code of `serve config` with these words.
fn config(user: &User, words: &[&str]) -> (Option<i32>, String, String) {
    let output = user.run(&[&["serve", "config"], words].concat());
    (output.code, output.out, output.err)
}

/// A user with this text in `p.toml`.
fn user_with(text: &str) -> User {
    let user = User::new();
    user.write("work/p.toml", text);
    user
}

/// Not in the folder where the command runs.
#[test]
fn key_paths_are_relative_to_the_configuration_file() {
    let user = User::new();
    user.write("work/inner/p.toml", "card_keys = [\"no.pem=k\"]\nallow_hosts = [\"a.example\"]\n");
    let (code, _, err) = config(&user, &["check", "--config", "inner/p.toml"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("cannot read inner/no.pem: "), "{err}");
}

#[test]
fn config_check_and_serve_reject_the_same_files() {
    let caller = "[[auth.api_keys]]\nname = \"a\"\nkey = \"0123456789abcdef\"\n";
    let issuer = "[[auth.issuers]]\nissuer = \"https://a.example\"\n";
    let long = "x".repeat(200);
    for text in [
        "admin = \"x\"\n",
        "admin = \"\"\n",
        "admin = \"127.0.0.1\"\n",
        "admin = \"unix:\"\n",
        "admin = \"unix:none/x\"\n",
        &format!("admin = \"unix:{long}\"\n"),
        "listen = [\"127.0.0.1:0\", \"x\"]\n",
        "listen = [\"0.0.0.0:0\"]\n",
        "memory = \"1KiB\"\n",
        "[tls]\ncert = \"none\"\nkey = \"none\"\n",
        "[[auth.bearer_tokens]]\nname = \"a\"\ntoken = \"with spaces in its text\"\n",
        &format!("{caller}tenants = [\"a/b\"]\n"),
        &format!("{caller}tenants = [\"a\", \"*\"]\n"),
        &format!("{caller}scopes = [\"a2a:read a2a:send\"]\n"),
        &format!("{issuer}algorithms = [\"HS256\"]\n"),
        &format!("{issuer}secret = \"{}\"\nalgorithms = [\"ES256\"]\n", "s".repeat(64)),
        "[agents.a]\nkind = \"echo\"\nscopes = [\"a b\"]\n",
        "[agents.a]\nkind = \"echo\"\nfields = [\"a b\"]\n",
        "public_url = \"x\"\n",
        "[logs]\nhash_key = \"fifteen bytes..\"\n",
        "[logs]\nhash_key_file = \"/dev/null\"\n",
        "[logs]\nhash_key_file = \"/dev/zero\"\n",
    ] {
        let text = format!("{text}\n");
        let user = user_with(&text);
        let (code, _, err) = config(&user, &["check", "--config", "p.toml"]);
        assert!(code != Some(0) && err.lines().count() == 1, "{text}: {err}");
        let output = user.run(&["serve", "--config", "p.toml", "--workers", "1"]);
        assert!(output.code == code && output.out.is_empty(), "{text}: {output:?}");
    }
}

#[test]
fn endless_file_is_rejected_at_1_mib() {
    let user = user_with("[agents.a]\nkind = \"script\"\nscript = \"/dev/zero\"\n");
    for words in [&["check", "--config", "/dev/zero"][..], &["check", "--config", "p.toml"]] {
        let (code, _, err) = config(&user, words);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("larger than 1 MiB"), "{err}");
    }
}

#[test]
fn config_init_prints_the_documented_example() {
    let output = config(&User::new(), &["init"]);
    assert_eq!(output, (Some(0), EXAMPLE.to_owned(), String::new()));
}

#[test]
fn port_without_a_host_listens_on_127_0_0_1() {
    for port in ["0", ":0"] {
        let server = Binary::start_at(port, &[]);
        assert_eq!(server.addr().ip().to_string(), "127.0.0.1", "{port}");
    }
}

#[test]
fn config_check_prints_ok_or_the_error_with_its_line() {
    let good =
        "workers = 1\npublic_url = \"https://${HOST_NAME}/x\"\n[agents.bob]\nkind = \"echo\"\n";
    let user = user_with(good).with("HOST_NAME", "a.example");
    let checked = config(&user, &["check", "--config", "p.toml"]);
    assert_eq!(checked, (Some(0), "p.toml: ok\n".to_owned(), String::new()));
    for (text, message) in [
        ("workers = 1\nworkrs = 2\n", "p.toml:2: unknown key \"workrs\"; did you mean workers?"),
        ("\nworkers = 0\n", "p.toml:2: workers: 0 is not a number from 1 to 1024"),
        ("card = 3\n", "p.toml:1: card: must be a string"),
        ("public_url = \"${NOT_SET}\"\n", "p.toml:1: public_url: the variable NOT_SET is not set"),
        ("workers = \n", "p.toml:1: "),
        // Values that the engine refuses, and errors of files, have their lines, too.
        ("\npublic_url = \"ftp://x\"\n", "p.toml:2: public_url: the public URL"),
        (
            "[[mounts]]\npath = \"/x\"\ndialect = \"standard\"\nagent = \"eve\"\n",
            "p.toml:4: mounts.1.agent: no agent is called \"eve\"",
        ),
        ("[agents.bob]\nscript = \"none.toml\"\n", "p.toml:2: agents.bob.script: cannot read"),
        ("listen = [\"0.0.0.0:0\"]\n", "p.toml: "),
        ("[push]\nsign_keys = [\"none.pem\"]\n", "p.toml:2: push.sign_keys: cannot read none.pem"),
        ("[tls]\ncert = \"none.pem\"\nkey = \"none.pem\"\n", "p.toml: cannot use none.pem"),
        (
            "[agents.a.upstream]\nurl = \"http://127.0.0.1:9\"\nca = \"none.pem\"\n",
            "p.toml:1: agents.a.upstream: cannot use none.pem",
        ),
    ] {
        let (code, out, err) = config(&user_with(text), &["check", "--config", "p.toml"]);
        // The system refuses a TLS file.
        let expected = if text.contains("[tls]") { 1 } else { 2 };
        assert_eq!((code, out.as_str()), (Some(expected), ""), "{text}: {err}");
        assert!(err.starts_with(&format!("peregrine: {message}")), "{text}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let (code, _, err) = config(&user, &["check"]);
    assert!(code == Some(2) && err.contains("add --config FILE"), "{err}");
    let (code, _, err) = config(&user, &["check", "--config", "none.toml"]);
    assert!(code == Some(2) && err.contains("cannot read none.toml"), "{err}");
    // The variable names the file as well, and the server itself prints the same.
    let user = user_with("workrs = 1\n").with("PEREGRINE_CONFIG", "p.toml");
    let output = user.run(&["serve"]);
    assert!(output.code == Some(2) && output.err.contains("p.toml:1: unknown key"), "{output:?}");
}

#[test]
fn card_signing_key_is_rejected_as_webhook_signing_key() {
    let user = User::new();
    for name in ["one.pem", "two.pem"] {
        let pem = KeyPair::generate_for(&PKCS_ED25519).unwrap().serialize_pem();
        user.write(&format!("work/{name}"), &pem);
    }
    let text = |key: &str| {
        format!(
            "public_url = \"https://a.example\"\ncard_keys = [\"one.pem=2026\"]\n\
             [push]\nsign_keys = [\"{key}\"]\n"
        )
    };
    user.write("work/p.toml", &text("two.pem"));
    assert_eq!(config(&user, &["check", "--config", "p.toml"]).0, Some(0));
    let output = user.run(&["serve", "--config", "p.toml", "--push-sign-key", "one.pem"]);
    let line = "--push-sign-key: one.pem: this key signs cards";
    assert!(output.code == Some(2) && output.err.contains(line), "{output:?}");
    user.write("work/p.toml", &text("one.pem"));
    let (code, _, err) = config(&user, &["check", "--config", "p.toml"]);
    assert!(code == Some(2) && err.contains("p.toml:4: push.sign_keys: one.pem"), "{err}");
}

#[test]
fn flags_override_variables_and_variables_override_the_file() {
    let text = "strict = true\nworkers = 3\nmemory = \"2GiB\"\npublic_url = \"https://a.example\"\n\
        card = \"v1\"\nlisten = [\"127.0.0.1:1\"]\ntenants = [\"a\"]\n[limits]\ntasks_max = 11\n\
        drain_ms = \"5s\"\n[[mounts]]\npath = \"/x\"\ndialect = \"standard\"\n\
        [agents.bob]\nkind = \"echo\"\ndescription = \"of the file\"\n";
    let variables = [
        ("PEREGRINE_STRICT", "false"),
        ("PEREGRINE_WORKERS", "4"),
        ("PEREGRINE_MEMORY", "3GiB"),
        ("PEREGRINE_PUBLIC_URL", "https://b.example"),
        ("PEREGRINE_CARD", "v03"),
        ("PEREGRINE_LISTEN", "127.0.0.1:2,127.0.0.1:3"),
        ("PEREGRINE_TENANTS", "any"),
        ("PEREGRINE_LIMITS_TASKS_MAX", "12"),
        ("PEREGRINE_AGENTS_BOB_DESCRIPTION", "of the environment"),
    ];
    let flags = [
        "--strict",
        "--workers",
        "5",
        "--memory",
        "4GiB",
        "--public-url",
        "https://c.example",
        "--card",
        "hybrid",
        "--listen",
        "127.0.0.1:4",
        "--tenants",
        "b,c",
        "--limit",
        "tasks_max=13",
        "--mount",
        "/y=standard",
    ];
    let shown = |user: &User, flags: &[&str]| {
        let words = [&["serve", "--config", "p.toml"], flags, &["config", "show"]].concat();
        user.ok(&words).out
    };
    let user = user_with(text);
    let output = shown(&user, &[]);
    for line in [
        "strict = true  # p.toml:1",
        "workers = 3  # p.toml:2",
        "memory = \"2GiB\"  # p.toml:3",
        "public_url = \"https://a.example\"  # p.toml:4",
        "card = \"v1\"  # p.toml:5",
        "listen = [\"127.0.0.1:1\"]  # p.toml:6",
        "tenants = [\"a\"]  # p.toml:7",
        "limits.tasks_max = 11  # p.toml:9",
        "limits.drain_ms = \"5s\"  # p.toml:10",
        "limits.head_bytes_max = 16384  # default",
        "ws_origins = []  # default",
        "# tls.cert is not set",
        "path = \"/x\"  # p.toml:12",
        "description = \"of the file\"  # p.toml:16",
    ] {
        assert!(output.lines().any(|other| other == line), "{line}: {output}");
    }
    let user = variables.iter().fold(user, |user, (name, value)| user.with(name, value));
    let output = shown(&user, &[]);
    for line in [
        "strict = false  # environment PEREGRINE_STRICT",
        "workers = 4  # environment PEREGRINE_WORKERS",
        "memory = \"3GiB\"  # environment PEREGRINE_MEMORY",
        "public_url = \"https://b.example\"  # environment PEREGRINE_PUBLIC_URL",
        "card = \"v03\"  # environment PEREGRINE_CARD",
        "listen = [\"127.0.0.1:2\", \"127.0.0.1:3\"]  # environment PEREGRINE_LISTEN",
        "tenants = \"any\"  # environment PEREGRINE_TENANTS",
        "limits.tasks_max = 12  # environment PEREGRINE_LIMITS_TASKS_MAX",
        "description = \"of the environment\"  # environment PEREGRINE_AGENTS_BOB_DESCRIPTION",
    ] {
        assert!(output.lines().any(|other| other == line), "{line}: {output}");
    }
    let output = shown(&user, &flags);
    for line in [
        "strict = true  # flag --strict",
        "workers = 5  # flag --workers",
        "memory = \"4GiB\"  # flag --memory",
        "public_url = \"https://c.example\"  # flag --public-url",
        "card = \"hybrid\"  # flag --card",
        "listen = [\"127.0.0.1:4\"]  # flag --listen",
        "tenants = [\"b\", \"c\"]  # flag --tenants",
        "limits.tasks_max = 13  # flag --limit",
        "limits.drain_ms = \"5s\"  # p.toml:10",
        "path = \"/y\"  # flag --mount",
    ] {
        assert!(output.lines().any(|other| other == line), "{line}: {output}");
    }
    assert!(
        !output.contains("path = \"/x\""),
        "a list takes the place of the whole list: {output}"
    );
    // The output is a configuration with the same meaning.
    let again = user_with(&output);
    let (code, out, err) = config(&again, &["check", "--config", "p.toml"]);
    assert_eq!((code, out.as_str()), (Some(0), "p.toml: ok\n"), "{err}");
}

/// Validates documents against this schema.
fn validator(schema: &Value) -> impl Fn(&Value) -> bool + use<> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.set_default_draft(Draft::V2020_12);
    compiler.add_resource("config.json", schema.clone()).unwrap();
    let index = compiler.compile("config.json", &mut schemas).unwrap();
    move |document| schemas.validate(document, index).is_ok()
}

fn schema() -> Value {
    let (code, out, err) = config(&User::new(), &["schema"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    serde_json::from_str(&out).unwrap()
}

/// The example with all comments uncommented: `#key`, where prose has a space.
fn whole_example() -> String {
    let lines = EXAMPLE.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c != ' ') => rest,
        _ => line,
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// The paths of all keys of a document; the first array element and the first agent stand for all.
fn keys_of(document: &Value, path: &str, keys: &mut BTreeSet<String>) {
    match document {
        Value::Object(members) => {
            for (name, value) in members {
                let is_of_names = matches!(path, "agents" | "quotas.named" | "quotas.tenants");
                let name = if is_of_names { "*" } else { name };
                let path = format!("{path}.{name}");
                keys_of(value, path.trim_start_matches('.'), keys);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items.iter().for_each(|item| keys_of(item, path, keys));
        }
        _ => drop(keys.insert(path.to_owned())),
    }
}

/// The paths of all keys of a schema, and the default of each.
fn keys_in(schema: &Value, path: &str, keys: &mut Vec<(String, Option<Value>)>) {
    let schema = schema.get("items").filter(|items| items["type"] == "object").unwrap_or(schema);
    if let Some(members) = schema["properties"].as_object() {
        for (name, value) in members {
            let path = format!("{path}.{name}");
            keys_in(value, path.trim_start_matches('.'), keys);
        }
    } else if schema["additionalProperties"].is_object() {
        keys_in(&schema["additionalProperties"], &format!("{path}.*"), keys);
    } else {
        keys.push((path.to_owned(), schema.get("default").cloned()));
    }
}

#[test]
fn the_example_has_every_key_with_its_default() {
    let (schema, user) = (schema(), user_with(EXAMPLE));
    let is_good = validator(&schema);
    let (code, out, err) = config(&user, &["check", "--config", "p.toml"]);
    assert_eq!((code, out.as_str()), (Some(0), "p.toml: ok\n"), "{err}");
    for text in [EXAMPLE, &whole_example()] {
        let document: Value = toml::from_str(text).unwrap();
        assert!(is_good(&document), "{document:#}");
    }
    let whole: Value = toml::from_str(&whole_example()).unwrap();
    let (mut of_example, mut of_schema) = (BTreeSet::new(), Vec::new());
    keys_of(&whole, "", &mut of_example);
    keys_in(&schema, "", &mut of_schema);
    let names: BTreeSet<String> = of_schema.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(of_example, names);
    for (name, default) in of_schema.into_iter().filter(|(name, _)| !name.contains('*')) {
        let Some(default) = default else { continue };
        let pointer = format!("/{}", name.replace('.', "/"));
        assert_eq!(whole.pointer(&pointer), Some(&default), "{name}");
    }
}

#[test]
fn configurations_in_the_guide_match_the_schema() {
    let is_good = validator(&schema());
    let page = include_str!("../../docs/guide/configuration.md");
    let blocks = page.split("```toml\n").skip(1).map(|text| text.split("```").next().unwrap());
    for block in blocks.collect::<Vec<_>>() {
        assert!(is_good(&toml::from_str(block).unwrap()), "{block}");
    }
    let live = "`limits.drain_ms`, `limits.tls_handshake_timeout_ms` |";
    assert_eq!(peregrine::net::LIVE_LIMITS, ["drain_ms", "tls_handshake_timeout_ms"]);
    assert!(page.contains(live));
}

#[test]
fn schema_and_config_check_reject_the_same_files() {
    let is_good = validator(&schema());
    for (text, good) in [
        ("", true),
        ("workers = 2\ntenants = \"any\"\n[limits]\ndrain_ms = \"5s\"\ntasks_max = 7\n", true),
        ("card = \"${FORM}\"\nmemory = \"512M\"\n", true),
        ("[agents.a]\nkind = \"echo\"\n", true),
        ("workrs = 2\n", false),
        ("workers = 0\n", false),
        ("workers = \"2\"\n", false),
        ("strict = 1\n", false),
        ("card = \"v2\"\n", false),
        ("listen = \"x\"\n", false),
        ("tenants = \"all\"\n", false),
        ("memory = \"5s\"\n", false),
        ("[limits]\ntask_max = 1\n", false),
        ("[limits]\ntasks_max = \"5s\"\n", false),
        ("[limits]\ntasks_max = 0\n", false),
        ("[tls]\ncrt = \"x\"\n", false),
        ("[agents.a]\nkind = \"ecko\"\n", false),
        ("[agents.\"a b\"]\nkind = \"echo\"\n", false),
        ("[mounts]\npath = \"/\"\n", false),
    ] {
        let document: Value = toml::from_str(text).unwrap();
        assert_eq!(is_good(&document), good, "{text}");
        let user = user_with(text).with("FORM", "v1");
        let (code, _, err) = config(&user, &["check", "--config", "p.toml"]);
        assert_eq!(code == Some(0), good, "{text}: {err}");
    }
}

#[test]
fn completion_and_manual_pages_cover_serve_config() {
    let user = User::new();
    user.ok(&["man", "pages"]);
    for page in ["serve", "serve-config", "serve-config-check", "serve-config-show"] {
        let page = user.path(&format!("work/pages/peregrine-{page}.1"));
        assert!(fs::read_to_string(&page).unwrap().contains("config"), "{}", page.display());
    }
    let script = user.ok(&["completion", "bash"]).out;
    for word in ["serve__subcmd__config", "--config", "schema"] {
        assert!(script.contains(word), "{word}");
    }
}

/// A server with a file, and its stderr.
struct Configured {
    user: User,
    server: Binary,
}

const ONE: &str = "[agents.first]\nkind = \"echo\"\n";

impl Configured {
    fn start(text: &str) -> Configured {
        let user = user_with(text);
        let stderr = File::create(user.path("stderr")).unwrap();
        let file = user.path("work/p.toml");
        let server = Binary::start_with(&["--config", file.to_str().unwrap()], stderr.into());
        Configured { user, server }
    }

    /// Replaces the file atomically.
    fn replace(&self, text: &str) {
        let fresh = self.user.write("work/fresh.toml", text);
        fs::rename(fresh, self.user.path("work/p.toml")).unwrap();
    }

    /// The lines of stderr; of JSON lines the message.
    fn log_text(&self) -> String {
        let raw = self.raw();
        let messages = raw.lines().map(|line| match serde_json::from_str::<Value>(line) {
            Ok(line) => format!("{}\n", line["message"].as_str().unwrap_or_default()),
            Err(_) => format!("{line}\n"),
        });
        messages.collect()
    }

    fn raw(&self) -> String {
        fs::read_to_string(self.user.path("stderr")).unwrap()
    }

    /// Waits until stderr has these words.
    fn wait_for_log(&self, words: &str) {
        eventually(words, || self.log_text().contains(words));
    }

    /// The description on an agent's card; `None`: there is no card.
    fn described(&self, agent: &str) -> Option<String> {
        let mut line = self.server.connect();
        line.write(&get(&format!("/agents/{agent}/.well-known/agent-card.json")));
        let reply = line.reply();
        (reply.status == 200).then(|| reply.json()["description"].as_str().unwrap().to_owned())
    }

    fn send(&self, agent: &str, text: &str) -> Value {
        let mut line = self.server.connect();
        let call = rpc("SendMessage", &V1.params(say(text)));
        line.write(&post(&format!("/agents/{agent}"), &[], &call));
        line.reply().result()
    }
}

/// A script that answers `hello`, and works for a long time at `wait`.
fn script(answer: &str) -> String {
    format!(
        "[[rule]]\ntext = \"hello\"\n[[rule.step]]\nmessage = [{{ text = \"{answer}\" }}]\n\
         [[rule]]\ntext = \"wait\"\n[[rule.step]]\nstatus = \"working\"\n[[rule.step]]\n\
         delay_ms = 600000\nstatus = \"completed\"\n"
    )
}

#[test]
fn sighup_adds_replaces_and_removes_agents_while_calls_run() {
    let scripted = |name: &str| format!("[agents.{name}]\nscript = \"{name}.toml\"\n");
    let user_file = |server: &Configured, name: &str, answer: &str| {
        server.user.write(&format!("work/{name}.toml"), &script(answer));
    };
    let server = Configured::start(ONE);
    user_file(&server, "bob", "one");
    user_file(&server, "zoe", "one");
    server.replace(&format!("{ONE}{}{}", scripted("bob"), scripted("zoe")));
    server.server.signal("-HUP");
    server.wait_for_log("was read again: agents added bob, zoe");
    assert_eq!(text_of(&server.send("bob", "hello")["message"]), "one");
    // Running calls: they continue if their agent stays, or has other rules.
    let held = |agent: &str| {
        let mut line = server.server.connect();
        let call = rpc("SendStreamingMessage", &V1.params(say("wait")));
        line.write(&post(&format!("/agents/{agent}"), &[], &call));
        line.read_until("TASK_STATE_WORKING");
        line
    };
    let [mut stays, mut older] = ["zoe", "bob"].map(held);
    user_file(&server, "bob", "two");
    let described = format!("{}description = \"another card\"\n", scripted("zoe"));
    server.replace(&format!("{ONE}{}{described}", scripted("bob")));
    server.server.signal("-HUP");
    server.wait_for_log("agents replaced bob; with a changed card zoe");
    assert_eq!(text_of(&server.send("bob", "hello")["message"]), "two");
    assert_eq!(server.described("zoe").as_deref(), Some("another card"));
    assert!(stays.is_silent() && older.is_silent());
    server.replace(ONE);
    server.server.signal("-HUP");
    server.wait_for_log("agents removed bob, zoe");
    assert_eq!((server.described("bob"), server.described("zoe")), (None, None));
    stays.read_until("TASK_STATE_FAILED");
    older.read_until("TASK_STATE_FAILED");
    server.server.assert_lives();
}

/// A script that asks, and one step later states its name; or does so after a while.
fn asking_script(name: &str) -> String {
    let done = format!("status = \"completed\"\ntext = \"{name} is done\"\n");
    format!(
        "[agent]\ndescription = \"{name}\"\n\
         [[rule]]\ntext = \"ask\"\n[[rule.step]]\nstatus = \"input-required\"\n\
         [[rule]]\ntext = \"hello\"\n[[rule.step]]\n{done}\
         [[rule]]\ntext = \"slow\"\n[[rule.step]]\nstatus = \"working\"\n\
         [[rule.step]]\ndelay_ms = 1500\n{done}"
    )
}

#[test]
fn running_tasks_keep_their_script_rules_after_a_reload() {
    let agent = "[agents.bob]\nscript = \"bob.toml\"\n";
    let server = Configured::start(ONE);
    let write = |name: &str| {
        server.user.write("work/bob.toml", &asking_script(name));
        server.server.signal("-HUP");
        eventually(name, || server.described("bob").as_deref() == Some(name));
    };
    server.user.write("work/bob.toml", &asking_script("old"));
    server.replace(&format!("{ONE}{agent}"));
    write("old");
    let next = |task: &Value| {
        let follow_up = OutgoingMessage { task: task["task"]["id"].as_str(), ..say("hello") };
        let mut line = server.server.connect();
        line.write(&post("/agents/bob", &[], &rpc("SendMessage", &V1.params(follow_up))));
        line.reply().result()["task"].take()
    };
    let answer = |task: &Value| text_of(&next(task)["status"]["message"]).to_owned();
    let paused = [server.send("bob", "ask"), server.send("bob", "ask")];
    let mut slow = server.server.connect();
    let call = rpc("SendStreamingMessage", &V1.params(say("slow")));
    slow.write(&post("/agents/bob", &[], &call));
    slow.read_until("TASK_STATE_WORKING");
    // A second change forgets neither the first rules nor the second.
    write("middle");
    let middle = server.send("bob", "ask");
    write("new");
    assert_eq!([answer(&paused[0]), answer(&middle)], ["old is done", "middle is done"]);
    let fresh = server.send("bob", "hello");
    assert_eq!(text_of(&fresh["task"]["status"]["message"]), "new is done");
    slow.read_until("old is done");
    // The echo agent that replaces the script answers the script's tasks.
    server.replace(&format!("{ONE}[agents.bob]\nkind = \"echo\"\ndescription = \"echo\"\n"));
    server.server.signal("-HUP");
    eventually("echo", || server.described("bob").as_deref() == Some("echo"));
    assert_eq!(next(&paused[1])["artifacts"][0]["artifactId"], "echo");
}

/// A file that the system refuses is not an error of the configuration.
#[test]
fn config_check_and_serve_exit_with_the_same_code() {
    for (text, code) in [
        ("[tls]\ncert = \"none.pem\"\nkey = \"none.pem\"\n", 1),
        ("[tls]\ncert = \"p.toml\"\nkey = \"p.toml\"\n", 1),
        ("[tls]\ncert = \"none.pem\"\n", 2),
        ("listen = [\"unix:none/socket\"]\n", 1),
        ("listen = [\"unix:p.toml\"]\n", 1),
        ("listen = [\"nowhere\"]\n", 2),
        ("listen = [\"0.0.0.0:0\"]\n", 2),
    ] {
        let user = user_with(text);
        let (checked, _, err) = config(&user, &["check", "--config", "p.toml"]);
        let served = user.run(&["serve", "--config", "p.toml"]);
        assert_eq!((checked, served.code), (Some(code), Some(code)), "{text}: {err}");
    }
}

#[test]
fn changed_configuration_file_is_reloaded_without_a_signal() {
    let server = Configured::start(ONE);
    server.replace(&format!("{ONE}description = \"another\"\n"));
    server.wait_for_log("was read again: agents with a changed card first");
    assert_eq!(server.described("first").as_deref(), Some("another"));
    // Overwritten in place, as some editors do.
    server.user.write("work/p.toml", &format!("{ONE}[agents.second]\nkind = \"echo\"\n"));
    server.wait_for_log("agents added second; with a changed card first");
    assert_eq!(server.log_text().lines().count(), 2, "{}", server.log_text());
}

#[test]
fn invalid_file_changes_nothing_and_logs_one_line() {
    let text = format!("{ONE}description = \"old\"\n");
    let server = Configured::start(&text);
    let bad = [
        (
            "workrs = 1\n",
            ":1: unknown key \"workrs\"; did you mean workers?; the running \
             configuration is unchanged",
        ),
        // Everything is valid but the last line.
        (
            "[agents.first]\nkind = \"echo\"\ndescription = \"new\"\n[agents.b]\nkind = \"echo\"\n\
             [limits]\ndrain_ms = \"1s\"\n[tls]\ncert = \"none\"\nkey = \"none\"\n",
            "cannot use ",
        ),
        ("[agents.first]\nscript = \"none.toml\"\n", ":2: agents.first.script: cannot read"),
        ("[agents.first]\nkind = \"echo\"\n[auth]\nproxi = 1\n", "did you mean proxy?"),
        (
            "",
            "the file is empty now; restart to run without a file; the running configuration is \
             unchanged",
        ),
    ];
    for (index, (text, expected)) in bad.into_iter().enumerate() {
        server.replace(text);
        server.server.signal("-HUP");
        server.wait_for_log(expected);
        assert_eq!(server.log_text().lines().count(), index + 1, "{}", server.log_text());
        assert_eq!(server.described("first").as_deref(), Some("old"));
        assert_eq!(server.described("b"), None);
    }
    fs::remove_file(server.user.path("work/p.toml")).unwrap();
    server.wait_for_log("cannot read ");
    server.replace(&text);
    server.wait_for_log("was read again: the agents are unchanged");
}

#[test]
fn warn_level_log_contains_only_failed_reloads() {
    let text = format!("{ONE}[logs]\nlevel = \"warn\"\n");
    let server = Configured::start(&text);
    server.replace(&format!("{text}[quotas]\nknwn = {{}}\n"));
    server.server.signal("-HUP");
    server.wait_for_log("did you mean known?; the running configuration is unchanged");
    server.replace(&format!("{text}[agents.second]\nkind = \"echo\"\n"));
    server.server.signal("-HUP");
    eventually("the second agent", || server.described("second").is_some());
    // That is normal, and not a line in a log of warnings.
    let lines: Vec<Value> =
        server.raw().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["level"]), (1, &json!("WARN")), "{lines:?}");
}

#[test]
fn reload_applies_live_keys_and_logs_keys_that_need_a_restart() {
    let server = Configured::start(&format!("workers = 1\n{ONE}"));
    server.replace(
        "default_agent = \"second\"\nstrict = true\n[limits]\ndrain_ms = \"3s\"\ntasks_max = 7\n\
         [agents.first]\nkind = \"echo\"\n[agents.second]\nkind = \"echo\"\n",
    );
    server.server.signal("-HUP");
    server.wait_for_log("need a restart: strict, limits.tasks_max, default_agent\n");
    assert!(server.log_text().contains("agents added second"), "{}", server.log_text());
    // The new drain time applies to the next drain.
    let mut line = server.server.connect();
    let call = rpc("SendStreamingMessage", &V1.params(say("hold:60000:1")));
    line.write(&post("/agents/first", &[], &call));
    line.read_until("TASK_STATE_SUBMITTED");
    server.server.terminate();
    server.wait_for_log("draining, for 3 s at most");
}

#[test]
fn reload_is_rejected_if_a_new_agent_has_a_tenants_name() {
    let server = Configured::start("tenants = \"any\"\n[agents.first]\nkind = \"echo\"\n");
    let mut line = server.server.connect();
    let mut params = V1.params(say("hello"));
    params["tenant"] = json!("bob");
    line.write(&post("/", &[], &rpc("SendMessage", &params)));
    assert!(line.reply().result()["task"].is_object());
    server.replace(
        "tenants = \"any\"\n[agents.first]\nkind = \"echo\"\n[agents.alice]\nkind = \"echo\"\n\
         [agents.bob]\nkind = \"echo\"\n",
    );
    server.wait_for_log("the tenant \"bob\" has 1 tasks");
    assert_eq!((server.described("alice"), server.described("bob")), (None, None));
}

/// Calls this agent with this line in the head; returns the status.
fn status(server: &Configured, line: &str) -> u16 {
    let mut tcp = server.server.connect();
    let call = rpc("ListTasks", &json!({}));
    let fields: Vec<(&str, &str)> = line.split_once(": ").into_iter().collect();
    tcp.write(&post("/", &[&[("A2A-Version", "1.0")], &fields[..]].concat(), &call));
    tcp.reply().status
}

#[test]
fn reload_replaces_callers_and_their_quotas() {
    let text = |keys: &str, quota: u32| {
        format!(
            "{ONE}{keys}[quotas.known]\ncalls_per_minute = 1000\n[quotas.named.small]\n\
             calls_per_minute = {quota}\n"
        )
    };
    let key = |name: &str, digest: &str, more: &str| {
        format!("[[auth.api_keys]]\nname = \"{name}\"\nsha256 = \"{digest}\"\n{more}")
    };
    // Hashes of `abc` and `abd`.
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let abd = "a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9";
    let server = Configured::start(&text(&key("alice", abc, ""), 1));
    assert_eq!(status(&server, ""), 401);
    assert_eq!(status(&server, "X-API-Key: abc"), 200);
    assert_eq!(status(&server, "X-API-Key: abd"), 401);
    // Adds another key with its own quota, and removes the first one.
    server.replace(&text(&key("bob", abd, "quota = \"small\"\n"), 1));
    server.server.signal("-HUP");
    server.wait_for_log("was read again: callers changed; the agents are unchanged");
    assert_eq!(status(&server, "X-API-Key: abc"), 401);
    assert_eq!(status(&server, "X-API-Key: abd"), 200);
    assert_eq!(status(&server, "X-API-Key: abd"), 429);
    server.replace(&text(&key("bob", abd, "quota = \"small\"\n"), 100_000));
    server.server.signal("-HUP");
    server.wait_for_log("was read again: quotas changed; the agents are unchanged");
    eventually("the larger quota holds", || status(&server, "X-API-Key: abd") == 200);
    // Invalid rules change nothing.
    server.replace(&text(&format!("{0}{0}", key("bob", abd, "")), 1));
    server.server.signal("-HUP");
    server.wait_for_log(
        "the key or token of \"bob\" is configured twice; the running configuration is \
         unchanged",
    );
    assert_eq!(status(&server, "X-API-Key: abd"), 200);
    // An empty list removes all callers.
    server.replace(&text("[auth]\napi_keys = []\n", 1));
    server.server.signal("-HUP");
    eventually("the key is rejected", || status(&server, "X-API-Key: abd") == 401);
    server.replace(&text(&key("bob", abd, ""), 100_000));
    server.server.signal("-HUP");
    eventually("bob is known again", || status(&server, "X-API-Key: abd") == 200);
    // To require no authentication needs a restart; until then no key is valid.
    server.replace(ONE);
    server.server.signal("-HUP");
    server.wait_for_log("need a restart: auth");
    assert_eq!((status(&server, ""), status(&server, "X-API-Key: abd")), (401, 401));
}

#[test]
fn reload_changes_access_logging_and_the_log_level() {
    let calls = |server: &Configured| server.raw().matches("\"method\":\"ListTasks\"").count();
    let server = Configured::start(ONE);
    assert_eq!(status(&server, ""), 200);
    server.replace(&format!("{ONE}[logs]\naccess = 1\n"));
    server.server.signal("-HUP");
    server.wait_for_log("was read again");
    assert_eq!(calls(&server), 0);
    assert_eq!(status(&server, ""), 200);
    eventually("a line a call", || calls(&server) == 1);
    // At a level above that of calls and reloads, neither is logged.
    server.replace(&format!("{ONE}[logs]\naccess = 1\nlevel = \"error\"\n"));
    server.server.signal("-HUP");
    let quiet = || {
        let before = calls(&server);
        assert_eq!(status(&server, ""), 200);
        calls(&server) == before
    };
    eventually("the level holds", quiet);
}

#[test]
fn server_is_ready_only_with_the_keys_of_its_issuers() {
    let issuer = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", issuer.local_addr().unwrap());
    let text = format!("{ONE}[[auth.issuers]]\nissuer = \"{url}\"\nkeys_url = \"{url}/keys\"\n");
    let server = Configured::start(&text);
    let ready = || {
        let mut line = server.server.connect();
        line.write(&get("/readyz"));
        let reply = line.reply();
        (reply.status, String::from_utf8(reply.body).unwrap())
    };
    // No server answers yet.
    let (status, body) = ready();
    assert_eq!(status, 503, "{body}");
    assert!(body.contains(&format!("the keys of {url} are missing: ")), "{body}");
    let keys = include_str!("../data/tokens/keys.json");
    thread::spawn(move || {
        for stream in issuer.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let length = keys.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all(&[head.as_bytes(), keys.as_bytes()].concat());
        }
    });
    eventually("the keys are there", || ready().0 == 200);
    assert!(ready().1.contains("\"keys\":\"ok\""), "{}", ready().1);
}

#[test]
fn config_show_hides_secrets() {
    let text = "[[auth.api_keys]]\nname = \"robot\"\nkey = \"${ROBOT_KEY}\"\n\
        [[auth.issuers]]\nissuer = \"https://a.example\"\n\
        secret = \"0123456789abcdef0123456789abcdef\"\n";
    let user = user_with(text).with("ROBOT_KEY", "correct-horse-battery");
    let (code, out, err) = config(&user, &["show", "--config", "p.toml"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("robot") && out.contains("https://a.example"), "{out}");
    for secret in ["correct-horse", "0123456789abcdef"] {
        assert!(!out.contains(secret) && !err.contains(secret), "{out}");
    }
    let text = "[[auth.api_keys]]\nname = \"a\"\nkey = \
                \"sixteen-bytes-ok\"\n[quotas.known]\nstreams = \
                3\n[quotas.named.small]\nrunning_tasks = 2\nrunning_bytes = \
                \"8MiB\"\n[limits]\nstreams_max = 800\ntasks_max = 80\nconnections_max = \
                160\nstore_bytes_max = \"160MiB\"\n";
    let shown = user_with(text).ok(&["serve", "--config", "p.toml", "config", "show"]).out;
    for line in [
        "quotas.known.streams = 3  # p.toml:5",
        "quotas.known.running_tasks = 10  # limits",
        "quotas.known.running_bytes = 20971520  # limits",
        "quotas.known.waiting_calls = 20  # limits",
        "quotas.anonymous.streams = 100  # limits",
        "streams = 100  # limits",
        "running_tasks = 2  # p.toml:7",
        "running_bytes = \"8MiB\"  # p.toml:8",
    ] {
        assert!(shown.lines().any(|other| other == line), "{line}: {shown}");
    }
    for (text, expected) in [
        ("[[auth.api_keys]]\nname = \"a\"\n", "needs exactly one of key and sha256"),
        ("[[auth.api_keys]]\nname = \"a\"\nsha256 = \"12\"\n", "64 hexadecimal digits"),
        (
            "[[auth.api_keys]]\nname = \"a\"\nkey = \"fifteen-bytes-k\"\n",
            "p.toml:3: auth.api_keys.1.key: has 15 bytes and needs at least 16: create one with",
        ),
        (
            "[[auth.bearer_tokens]]\nname = \"a\"\ntoken = \"\"\n",
            "p.toml:3: auth.bearer_tokens.1.token: has 0 bytes and needs at least 16",
        ),
        ("[auth]\nask_scopes = true\n", "p.toml:1: auth: no caller can be authenticated"),
        ("[auth]\napi_keys = []\n", "p.toml:1: auth: no caller can be authenticated"),
        ("[auth.proxy]\n", "p.toml:1: auth.proxy.name_header: must be a non-empty string"),
        (
            "[auth.certificates]\n",
            "p.toml:1: auth.certificates: no certificate is requested from clients",
        ),
        (
            "[[auth.api_keys]]\nname = \"a\"\nkey = \
             \"sixteen-bytes-ok\"\n[auth.certificates]\nscopes = [\"x\"]\n",
            "p.toml:4: auth.certificates: no certificate is requested from clients",
        ),
        (
            "[[auth.issuers]]\nissuer = \"http://a.example\"\n",
            "p.toml:2: auth.issuers.1.issuer: the keys of",
        ),
        ("[auth.proxy]\nnetworks = [\"10.0.0.1/8\"]\n", "must be an address, or a network"),
        ("[quotas.known]\ncall_burst = 3\n", "needs calls_per_minute"),
        ("[quotas.known]\nrunning_bytes = \"8TiB\"\n", "p.toml:2: quotas.known.running_bytes"),
        ("trusted_proxies = [\"x\"]\n", "must be an address"),
    ] {
        let (code, _, err) = config(&user_with(text), &["check", "--config", "p.toml"]);
        assert_eq!((code, err.lines().count()), (Some(2), 1), "{text}: {err}");
        assert!(err.contains(expected), "{text}: {err}");
    }
}
