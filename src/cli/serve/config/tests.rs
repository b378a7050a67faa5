//! The values of flags, variables and files, and their precedence.

use std::{ffi::OsString, path::PathBuf};

use peregrine::{
    engine::{Binding, Tenants},
    limits::{Limits, memory_bytes_default},
    model::{Idempotency, IdempotentConflict},
};

use super::*;
use crate::cli::{
    command::{CommandLine, parse},
    serve::flags as all_flags,
};

fn serve(words: &str) -> Result<Serve, String> {
    let words = words.split_whitespace().map(OsString::from).collect();
    match parse(words) {
        Ok(CommandLine::Run(matches)) => {
            let (_, flags) = matches.subcommand().unwrap();
            let config = ConfigOrigin::with(flags, Variables::default()).read();
            config.map(|config| config.serve).map_err(|UsageError(line)| line)
        }
        Ok(CommandLine::Print(_)) => Err("not serve".to_owned()),
        Err(UsageError(line)) => Err(line),
    }
}

#[test]
fn serve_without_arguments_uses_defaults() {
    let serve = serve("serve").unwrap();
    assert!(serve.listen.is_empty() && serve.agents.is_empty());
    assert!(serve.workers >= 1 && serve.streaming && !serve.anonymous);
}

#[test]
fn serve_flags_are_parsed() {
    let serve = serve(
        "serve --listen 127.0.0.1:1 --listen=[::1]:2 --agent echo --agent bob=script:a=b:c \
         --public-url https://a.example/x --workers 3 --limit tasks_max=9 --card v03 \
         --mount /x=v1:bob --strict-version --strict --no-streaming --extended-card \
         --test-echo /e --ws-origin https://a.example --ws-origin=* --allow-anonymous \
         --tls-cert a --tls-key b --tls-client-ca c --allow-host a.example \
         --allow-host ::1 --interfaces=websocket,grpc=h:1 --tenants a,b",
    )
    .unwrap();
    assert_eq!(serve.listen, ["127.0.0.1:1", "[::1]:2"]);
    assert_eq!((serve.workers, serve.streaming, serve.anonymous), (3, false, true));
    let [cert, key, client_ca] = ["a", "b", "c"].map(PathBuf::from);
    assert_eq!(serve.tls, Some(TlsFiles { cert, key, client_ca: Some(client_ca) }));
    let bob = &serve.agents[1];
    assert_eq!(bob.name.as_deref(), Some("bob"));
    assert_eq!(bob.program, Program::Script(PathBuf::from("a=b:c")));
    let setup = &serve.setup;
    assert_eq!((setup.limits.tasks_max, setup.strict_version), (9, true));
    assert!(setup.strict);
    assert!(setup.extended_card && setup.test_echo.as_deref() == Some("/e"));
    let listed: Vec<_> =
        setup.interfaces.iter().map(|one| (one.binding, one.url.as_deref())).collect();
    assert_eq!(listed, [(Binding::WebSocket, None), (Binding::Grpc, Some("h:1"))]);
    assert_eq!(setup.ws_origins, ["https://a.example", "*"]);
    assert_eq!(setup.allow_hosts, ["a.example", "::1"]);
    assert_eq!(setup.mounts[0].agent.as_deref(), Some("bob"));
    let named = Tenants::Named(["a", "b"].map(str::to_owned).into());
    assert_eq!(setup.tenants, named);
}

#[test]
fn invalid_arguments_give_one_line_errors() {
    for (words, expected) in [
        ("", "nothing to do"),
        ("sevre", "unknown command \"sevre\"; did you mean serve?"),
        ("serve again", "unknown command \"again\""),
        ("serve -x", "unknown flag -x"),
        ("serve --lisen 1", "did you mean --listen?"),
        ("serve --listen", "--listen needs a value: --listen <ADDR>"),
        ("serve --no-streaming=1", "--no-streaming takes no value"),
        ("serve --tls-cert a", "add --tls-key"),
        ("serve --tls-key a", "add --tls-cert"),
        ("serve --tls-client-ca a", "add --tls-cert and --tls-key"),
        ("serve --tls-crt a", "did you mean --tls-cert?"),
        ("serve --workers 0", "--workers: \"0\" must be a number from 1 to 1024"),
        ("serve --agent ehco", "--agent: unknown agent kind \"ehco\""),
        ("serve --agent ./rev.sh", "did you mean exec:./rev.sh?"),
        ("serve --agent r=./rev.sh", "did you mean exec:./rev.sh?"),
        ("serve --agent my/agent=echo", "invalid agent name \"my/agent\"; use letters"),
        ("serve --agent echo:x", "takes no argument"),
        ("serve --agent script", "needs a file"),
        ("serve --agent echo --agent echo", "only one --agent"),
        ("serve --limit body=1", "unknown limit \"body\""),
        ("serve --limit task_max=1", "did you mean tasks_max?"),
        ("serve --limit tasks_max=0", "must be a whole number above zero"),
        ("serve --limit tasks_max", "must be NAME=VALUE"),
        ("serve --limit tasks_max=5s", "not a number without a unit"),
        ("serve --limit body_bytes_max=5s", "not a size such as 4096, 64KiB"),
        ("serve --limit drain_ms=1GiB", "not a time such as 250ms, 5s"),
        ("serve --memory much", "not a size such as 4096, 64KiB, 512M"),
        ("serve --memory 5s", "not a size"),
        ("serve --memory 1M", "limits need at least"),
        ("serve --mount /x", "not PATH=DIALECT"),
        ("serve --tenants a,,b", "--tenants: \"\" must be any, or have only"),
        ("serve --card v2", "must be one of v1, v03, hybrid"),
        (
            "serve --interfaces rest",
            "\"rest\"; known interfaces: jsonrpc, http+json, grpc, websocket",
        ),
        ("serve --interfaces json-rpc", "did you mean jsonrpc?"),
        ("serve --interfaces=", "unknown interface \"\""),
        ("serve --interfaces jsonrpc,jsonrpc", "jsonrpc is listed twice"),
        ("serve --interfaces http+json=h:1", "begin with http:// or https://"),
        ("serve --allow-host a.example:80", "must be a name or address, without a port"),
        ("serve --ws-origin a.example", "must be https://host:port or *"),
        ("serve --ws-origin https://a.example/", "must be https://host:port or *"),
    ] {
        let line = serve(words).err().unwrap();
        assert!(line.contains(expected) && !line.contains('\n'), "{words}: {line}");
    }
}

#[test]
fn extended_card_is_off_by_default() {
    for (words, on) in [
        ("serve", false),
        ("serve --no-extended-card", false),
        ("serve --extended-card", true),
        ("serve --extended-card --no-extended-card", false),
    ] {
        assert_eq!(serve(words).unwrap().setup.extended_card, on, "{words}");
    }
}

#[test]
fn memory_flag_divides_memory_but_keeps_explicit_limits() {
    let limits = |words: &str| serve(words).unwrap().setup.limits;
    let divided = limits("serve --workers 6 --memory 544M");
    assert!(divided.memory_bytes_max(6, false) <= 544 << 20);
    assert!(limits("serve --workers 6").memory_bytes_max(6, false) <= memory_bytes_default(6));
    // In either order, an explicit limit wins, even if it equals the default.
    let all = Limits::default().store_bytes_max;
    for words in
        ["--limit store_bytes_max=1GiB --memory 2G", "--memory 2G --limit store_bytes_max=1GiB"]
    {
        let limits = limits(&format!("serve --workers 2 {words}"));
        assert_eq!(limits.store_bytes_max, all);
        assert!(limits.memory_bytes_max(2, false) <= 2 << 30);
    }
}

#[test]
fn the_help_names_every_flag() {
    let help = all_flags::command().term_width(100).render_help().to_string();
    assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    for arg in all_flags::command().get_arguments().filter(|arg| !arg.is_hide_set()) {
        assert!(help.contains(&format!("--{}", arg.get_long().unwrap())));
    }
}

/// A file, and variables as `NAME=value`.
fn of_file(text: &str, variables: &[&str]) -> Result<(ConfigSection, Serve), String> {
    let pairs = variables.iter().map(|pair| pair.split_once('=').unwrap());
    let variables = Variables::new(pairs);
    let read = || {
        let mut root = tree::read(text, sections::KEYS, Path::new("folder"), &variables)?;
        tree::with_variables(&mut root, &variables)?;
        let serve = sections::read(&root, 4)?;
        Ok((root, serve))
    };
    read().map_err(|wrong: Wrong| wrong.line("p.toml"))
}

const FILE: &str = r#"
listen = ["127.0.0.1:0", "[::1]:${PORT}"]
workers = 3
tenants = ["a", "b"]
interfaces = ["grpc=h:1", "jsonrpc"]
card = "v03"
streaming = false
allow_hosts = [
    "a.example",
    "${HOST}",
]
default_agent = "bob"

[limits]
tasks_max = 9
body_bytes_max = "64KiB"
drain_ms = "5s"

[tls]
cert = "a.pem"
key = "/b.pem"

[[mounts]]
path = "/x"
dialect = "v1"
agent = "bob"

[agents.zoe]
kind = "echo"

[agents.bob]
script = "bob.toml"
description = "costs 5$$"
provider = { organization = "Acme", url = "https://acme.example" }
fields = ["traceparent"]

[[agents.bob.skills]]
id = "draw"
scopes = ["art"]

[[agents.bob.extensions]]
uri = "urn:x"
params = '{"a":1}'
"#;

#[test]
fn config_file_sets_server_and_agent_settings() {
    let (_, serve) = of_file(FILE, &["PORT=7", "HOST=b.example"]).unwrap();
    assert_eq!(serve.listen, ["127.0.0.1:0", "[::1]:7"]);
    assert_eq!((serve.workers, serve.streaming, serve.anonymous), (3, false, false));
    let limits = &serve.setup.limits;
    assert_eq!((limits.tasks_max, limits.body_bytes_max, limits.drain_ms), (9, 65_536, 5_000));
    assert_eq!(serve.setup.allow_hosts, ["a.example", "b.example"]);
    assert_eq!(serve.setup.tenants, Tenants::Named(["a", "b"].map(str::to_owned).into()));
    let [cert, key] = ["folder/a.pem", "/b.pem"].map(PathBuf::from);
    assert_eq!(serve.tls, Some(TlsFiles { cert, key, client_ca: None }));
    // The configured default agent comes first, the others in the order of the file.
    let [bob, zoe] = &serve.agents[..] else { panic!() };
    assert_eq!((bob.name.as_deref(), zoe.name.as_deref()), (Some("bob"), Some("zoe")));
    assert_eq!(bob.program, Program::Script(PathBuf::from("folder/bob.toml")));
    let mut profile = peregrine::agent::echo::Echo::profile();
    bob.card.over(&mut profile);
    assert_eq!((profile.description.as_str(), profile.fields.len()), ("costs 5$", 1));
    assert_eq!(profile.provider.unwrap().organization, "Acme");
    assert_eq!((profile.skills[0].name.as_str(), profile.skills.len()), ("draw", 1));
    assert_eq!(profile.skills[0].scopes, ["art"]);
    assert!(profile.extensions[0].params.is_some() && profile.streaming);
}

#[test]
fn config_file_error_has_line_number_and_suggestion() {
    for (text, expected) in [
        ("workers = 1\nworkrs = 2", "p.toml:2: unknown key \"workrs\"; did you mean workers?"),
        ("\n[limits]\ntask_max = 1", "p.toml:3: limits: unknown key \"task_max\"; did you mean"),
        ("[limit]", "p.toml:1: unknown key \"limit\"; did you mean limits?"),
        ("[tls]\nworkers = 1", "p.toml:2: tls: unknown key \"workers\"; it belongs above"),
        ("client_ca = \"a\"", "p.toml:1: unknown key \"client_ca\"; it belongs to [tls]"),
        (
            "push_allow = [\"a\"]",
            "p.toml:1: unknown key \"push_allow\"; it is the key allow of [push]",
        ),
        (
            "[agents.x]\ntls = {}",
            "p.toml:2: agents.x: unknown key \"tls\"; it is a separate section",
        ),
        ("[agents.x]\nexec = \"./x\"", "agents.x: unknown key \"exec\"; did you mean command?"),
        (
            "[[auth.bearer_tokens]]\nname = \"a\"\ntoken = \"has spaces in its text\"",
            "p.toml:3: auth.bearer_tokens.1.token: has spaces",
        ),
        (
            "[[auth.api_keys]]\nname = \"a\"\nkey = \" has-a-space-first\"",
            "p.toml:3: auth.api_keys.1.key: has spaces",
        ),
        (
            "[[auth.api_keys]]\nname = \"a\"\nkey = \"has-no-spaces-in\"\ntenants = [\"a/b\"]",
            "p.toml:4: auth.api_keys.1.tenants: \"a/b\" may only have letters",
        ),
        (
            "[auth.proxy]\nnetworks = [\"::1/128\"]\nname_header = \"x-a\"\nscopes = [\"a b\"]",
            "p.toml:4: auth.proxy.scopes: \"a b\" is not a scope",
        ),
        (
            "[[auth.issuers]]\nissuer = \"https://a.example\"\nsecret = \"0123456789012345678901\
             2345678901\"\nalgorithms = [\"HS256\", \"ES256\"]",
            "p.toml:4: auth.issuers.1.algorithms: ES256 cannot be used with a secret",
        ),
        (
            "[[auth.issuers]]\nissuer = \"https://a.example\"\nalgorithms = [\"HS256\"]",
            "p.toml:3: auth.issuers.1.algorithms: HS256 needs a secret",
        ),
        ("workers = ", "p.toml:1: "),
        ("workers = 1\nworkers = 2", "p.toml:2: "),
        ("workers = \"2\"", "p.toml:1: workers: must be a whole number from 1 to 1024"),
        ("workers = 0", "p.toml:1: workers: 0 is not a number from 1 to 1024"),
        ("workers = -1", "-1 is not a number from 1"),
        ("workers = 1.5", "must be a whole number"),
        ("strict = \"yes\"", "p.toml:1: strict: must be true or false"),
        ("listen = \"a\"", "p.toml:1: listen: must be an array of strings"),
        ("listen = [\n\"a\",\n7]", "p.toml:3: listen: must be an array of strings"),
        ("[push]\nports = [443,\ntrue]", "p.toml:3: push.ports: must be an array of whole numbers"),
        ("card = \"hybird\"", "must be one of v1, v03, hybrid; did you mean hybrid?"),
        ("tenants = \"all\"", "must be \"any\" or an array of strings"),
        ("tenants = [\"a\",\n\"b c\"]", "p.toml:2: tenants: \"b c\" must be any, or have only"),
        ("allow_hosts = [\"a\",\n\n\"b:80\"]", "p.toml:3: allow_hosts: \"b:80\" must be a name"),
        ("interfaces = [\"json-rpc\"]", "did you mean jsonrpc?"),
        ("memory = \"much\"", "p.toml:1: memory: \"much\" is not a size"),
        ("memory = \"1M\"", "p.toml:1: memory: "),
        ("memory = true", "p.toml:1: memory: must be a size"),
        ("[limits]\ndrain_ms = \"1GiB\"", "p.toml:2: limits.drain_ms: \"1GiB\" is not a time"),
        ("[limits]\ntasks_max = 0", "p.toml:2: limits.tasks_max: \"0\" must be a whole number"),
        ("[limits]\ntasks_max = -4", "p.toml:2: limits.tasks_max: \"-4\" must be a whole number"),
        ("public_url = \"${NONE}\"", "p.toml:1: public_url: the variable NONE is not set"),
        ("listen = [\"a\",\n\"${NONE}\"]", "p.toml:2: listen: the variable NONE is not set"),
        ("[tls]\ncert = \"a\"", "p.toml:2: tls.cert: needs its private key"),
        ("[tls]\nkey = \"a\"", "p.toml:2: tls.key: needs its certificate"),
        ("tls = 1", "p.toml:1: tls: must be a table, written [tls]"),
        (
            "[traces]\nendpoint = \"a:1\"",
            "p.toml:2: traces.endpoint: cannot use the collector of traces",
        ),
        ("[traces]\nendpoint = \"http://192.0.2.1\"", "p.toml:2: traces.endpoint: the collector"),
        (
            "[traces]\nendpoint = \"https://a\"\nheaders = [\"Host: a\"]",
            "p.toml:3: traces.headers: \"Host\" is not a field that can be added",
        ),
        (
            "[traces]\nendpoint = \"https://a\"\nheaders = [\"hush\"]",
            "p.toml:3: traces.headers: must be a name and a value",
        ),
        ("mounts = 1", "p.toml:1: mounts: must be tables, each written [[mounts]]"),
        ("[[mounts]]\npath = \"/\"", "p.toml:1: mounts.1.dialect: is missing"),
        ("[agents]\nbob = 1", "p.toml:2: agents.bob: must be a table, written [agents.bob]"),
        ("[agents.\"b b\"]", "p.toml:1: agents: the name \"b b\" may only have"),
        ("[agents.bob]", "p.toml:1: agents.bob.kind: is missing"),
        (
            "[agents.bob]\nkind = \"ecko\"",
            "p.toml:2: agents.bob.kind: \"ecko\" must be one of echo",
        ),
        ("[agents.bob]\nkind = \"script\"", "agents.bob.script: is missing"),
        (
            "[agents.bob]\nkind = \"echo\"\nscript = \"x\"",
            "p.toml:3: agents.bob.script: is only for",
        ),
        ("[agents.bob]\nkind = \"echo\"\nskils = 1", "p.toml:3: agents.bob: unknown key"),
        (
            "[agents.bob]\nkind = \"echo\"\n[[agents.bob.skills]]\nname = \"x\"",
            "p.toml:3: agents.bob.skills.1.id: must be",
        ),
        (
            "[agents.bob]\nkind = \"echo\"\n[[agents.bob.extensions]]\nuri = \"x\"\nparams = '[]'",
            "p.toml:5: agents.bob.extensions.1.params: must be a JSON object",
        ),
        (
            "[agents.bob]\nkind = \"echo\"\nprovider = { url = \"x\" }",
            "p.toml:3: agents.bob.provider.organization: must be",
        ),
        (
            "default_agent = \"bbo\"\n[agents.bob]\nkind = \"echo\"",
            "p.toml:1: default_agent: no agent is called \"bbo\"; did you mean bob?",
        ),
    ] {
        let line = of_file(text, &[]).err().unwrap_or_else(|| panic!("{text} is good"));
        assert!(line.contains(expected) && !line.contains('\n'), "{text}: {line}");
    }
}

#[test]
fn reference_to_undefined_quota_is_rejected() {
    let named = "[quotas.named.small]\nstreams = 1\n";
    for (start, path) in [
        ("[[auth.api_keys]]\nname = \"a\"\nkey = \"sixteen-bytes-ok\"\n", "auth.api_keys.1.quota"),
        (
            "[[auth.bearer_tokens]]\nname = \"a\"\ntoken = \"sixteen-bytes-ok\"\n",
            "auth.bearer_tokens.1.quota",
        ),
        (
            "[[auth.issuers]]\nissuer = \"https://i.example\"\nname_claim = \"sub\"\n",
            "auth.issuers.1.quota",
        ),
        (
            "[auth.proxy]\nnetworks = [\"10.0.0.0/8\"]\nname_header = \"X-User\"\n",
            "auth.proxy.quota",
        ),
        (
            "tls = { cert = \"a\", key = \"b\", client_ca = \"c\" }\n[auth.certificates]\n\
             scopes = []\n",
            "auth.certificates.quota",
        ),
        ("[agents.bob]\nkind = \"echo\"\nversion = \"1\"\n", "agents.bob.quota"),
    ] {
        of_file(&format!("{start}quota = \"small\"\n{named}"), &[]).unwrap();
        let line = of_file(&format!("{start}quota = \"smal\"\n{named}"), &[]).err().unwrap();
        let why = "no quota \"smal\" in [quotas.named]; did you mean small?";
        assert_eq!(line, format!("p.toml:4: {path}: {why}"));
        let line = of_file(&format!("{start}quota = \"small\"\n"), &[]).err().unwrap();
        assert!(line.ends_with("no quota \"small\" in [quotas.named]"), "{line}");
    }
}

#[test]
fn cors_headers_and_max_age_are_read_from_file() {
    let text = "cors_origins = [\"https://a.example\"]\ncors_headers = [\"X-Trace\",\n\"X-A\"]\n\
        cors_max_age_s = 60\n";
    let cors = of_file(text, &[]).unwrap().1.setup.cors;
    assert_eq!((cors.headers, cors.max_age_s), (vec!["X-Trace".to_owned(), "X-A".to_owned()], 60));
    assert_eq!(of_file("", &[]).unwrap().1.setup.cors.max_age_s, 7_200);
    for (from, to, expected) in [
        ("X-A", "X A", "p.toml:3: cors_headers: \"X A\" is not the name of a header field"),
        ("= 60", "= -1", "p.toml:4: cors_max_age_s: -1 is not a number from 0"),
        ("a.example\"", "a.example\",\n\"x\"", "p.toml:2: cors_origins: the CORS origin \"x\""),
    ] {
        let line = of_file(&text.replace(from, to), &[]).err().unwrap();
        assert!(line.starts_with(expected), "{line}");
    }
}

#[test]
fn idempotent_send_is_read_from_config_file() {
    let of = |text: &str| of_file(text, &[]).map(|(_, serve)| serve.setup.idempotency);
    for (word, expected) in [
        ("off", Idempotency::Off),
        ("authenticated", Idempotency::Authenticated),
        ("everybody", Idempotency::Everybody),
    ] {
        assert_eq!(of(&format!("idempotent_send = \"{word}\"")), Ok(expected));
    }
    assert_eq!(of(""), Ok(Idempotency::Authenticated));
    let line = of("idempotent_send = \"every\"").unwrap_err();
    assert!(line.starts_with("p.toml:1: idempotent_send: \"every\" must be one of off"), "{line}");
    let of = |text: &str| of_file(text, &[]).map(|(_, serve)| serve.setup.idempotent_conflict);
    assert_eq!(of(""), Ok(IdempotentConflict::New));
    assert_eq!(of("idempotent_conflict = \"new\""), Ok(IdempotentConflict::New));
    assert_eq!(of("idempotent_conflict = \"refuse\""), Ok(IdempotentConflict::Refuse));
}

#[test]
fn auth_proxy_networks_are_trusted_proxies() {
    let proxy = "[auth.proxy]\nnetworks = [\"10.0.0.0/8\"]\nname_header = \"X-User\"\n";
    let hops = |text: &str| of_file(text, &[]).unwrap().1.setup.trusted_proxies;
    let [first, second] = ["192.0.2.1", "10.0.0.0/8"].map(|text| text.parse().unwrap());
    assert_eq!(hops(proxy), [second]);
    assert_eq!(hops(&format!("trusted_proxies = [\"192.0.2.1\"]\n{proxy}")), [first, second]);
}

#[test]
fn environment_overrides_config_file() {
    let (_, serve) = of_file(
        FILE,
        &[
            "PORT=7",
            "HOST=b.example",
            "PEREGRINE_WORKERS=5",
            "PEREGRINE_STREAMING=yes",
            "PEREGRINE_LISTEN=127.0.0.1:1, 127.0.0.1:2",
            "PEREGRINE_LIMITS_BODY_BYTES_MAX=1MiB",
            "PEREGRINE_LIMITS_STREAMS_MAX=8",
            "PEREGRINE_TLS_CLIENT_CA=ca.pem",
            "PEREGRINE_TENANTS=any",
            "PEREGRINE_CARD=",
            "PEREGRINE_AGENTS_BOB_VERSION=9.9",
            "PEREGRINE_AGENTS_ZOE_PROVIDER_ORGANIZATION=Acme",
            "PEREGRINE_AGENTS_ZOE_PROVIDER_URL=https://acme.example",
            // Variables of other programs.
            "PEREGRINE_CONFIG=x",
            "PEREGRINE_VERSION=1",
            "PEREGRINE_PORT_3000_TCP=tcp://10.0.0.1:3000",
            "PEREGRINE_SERVICE_HOST=10.0.0.1",
            "PEREGRINE_AGENTS_SERVICE_PORT_HTTP=3000",
            "PEREGRINE_LIMITS_PORT=tcp://10.0.0.1:3000",
        ],
    )
    .unwrap();
    assert_eq!((serve.workers, serve.streaming), (5, true));
    assert_eq!(serve.listen, ["127.0.0.1:1", "127.0.0.1:2"]);
    let limits = &serve.setup.limits;
    assert_eq!((limits.body_bytes_max, limits.streams_max), (1 << 20, 8));
    // Paths in the environment are relative to the working directory.
    assert_eq!(serve.tls.unwrap().client_ca, Some(PathBuf::from("ca.pem")));
    assert_eq!(serve.setup.tenants, Tenants::Any);
    let mut profile = peregrine::agent::echo::Echo::profile();
    serve.agents[0].card.over(&mut profile);
    assert_eq!(profile.version, "9.9");
    serve.agents[1].card.over(&mut profile);
    assert_eq!(profile.provider.unwrap().url, "https://acme.example");
}

#[test]
fn invalid_environment_variable_is_named_in_error() {
    for (variable, expected) in [
        ("PEREGRINE_WORKRS=1", "PEREGRINE_WORKRS: unknown key; did you mean PEREGRINE_WO"),
        ("PEREGRINE_LIMITS_TASK_MAX=1", "did you mean PEREGRINE_LIMITS_TASKS_MAX?"),
        ("PEREGRINE_LIMITS_XYZ=1", "PEREGRINE_LIMITS_XYZ: unknown key"),
        ("PEREGRINE_AGENTS_NOBODY_KIND=echo", "unknown key"),
        ("PEREGRINE_WORKERS=0", "PEREGRINE_WORKERS: \"0\" must be a number from 1 to 1024"),
        ("PEREGRINE_STRICT=maybe", "PEREGRINE_STRICT: \"maybe\" is not true or false"),
        ("PEREGRINE_LIMITS_DRAIN_MS=x", "PEREGRINE_LIMITS_DRAIN_MS: \"x\" must be a whole number"),
        ("PEREGRINE_AGENTS_A_B_KIND=echo", "PEREGRINE_AGENTS_A_B_KIND: it is the variable of two"),
    ] {
        let text = "[agents.a-b]\nkind = \"echo\"\n[agents.a_b]\nkind = \"echo\"\n";
        let line = of_file(text, &[variable]).err().unwrap_or_else(|| panic!("{variable} is good"));
        assert!(line.contains(expected) && !line.contains('\n'), "{variable}: {line}");
    }
}

#[test]
fn engine_build_error_is_mapped_to_config_line() {
    use peregrine::engine::BuildError;

    let text = "public_url = \"x\"\nallow_hosts = [\"a\",\n\"b\"]\n\
        [[mounts]]\npath = \"/x\"\ndialect = \"v9\"\n[[mounts]]\npath = \"/x/\"\ndialect = \"v1\"\n\
        agent = \"eve\"\n[agents.bob]\nkind = \"echo\"\nfields = [\"a\",\n\"te\"]\n";
    let (root, _) = of_file(text, &[]).unwrap();
    let own = |text: &str| text.to_owned();
    for (error, prefix) in [
        (BuildError::PublicUrl(own("x")), "p.toml:1: public_url: "),
        (BuildError::Host(own("b")), "p.toml:3: allow_hosts: "),
        (BuildError::Dialect(own("v9")), "p.toml:6: mounts.1.dialect: "),
        (BuildError::SameMount(own("/x")), "p.toml:8: mounts.2.path: "),
        (BuildError::Agent(own("eve")), "p.toml:10: mounts.2.agent: "),
        (BuildError::Field(own("te")), "p.toml:14: agents.bob.fields: "),
    ] {
        let line = blame(&root, &error).unwrap().line("p.toml");
        assert!(line.starts_with(prefix), "{error:?}: {line}");
    }
}

#[test]
fn each_key_of_an_upstream_agent_is_read() {
    let of = |line: &str| {
        let text = format!("[agents.a.upstream]\nurl = \"https://a.example\"\n{line}");
        let (_, serve) = of_file(&text, &[])?;
        match &serve.agents[0].program {
            Program::Remote(remote) => Ok(remote.made_of()),
            other => Err(format!("{other:?}")),
        }
    };
    let oauth = |url: &str| format!("{url}\nclient_id = \"me\"\nclient_secret = \"secret\"");
    let oauth = ["token_url = \"https://t.example\"", "issuer = \"http://[::1]:1\""].map(oauth);
    let mut seen = vec![of("").unwrap()];
    for line in [
        "transports = [\"grpc\"]",
        "version = \"1.0\"",
        "version_min = \"0.3\"",
        "tenant = \"acme\"",
        "api_key = \"secret\"",
        "bearer = \"secret\"",
        "basic = \"name:secret\"",
        &oauth[0],
        &oauth[0].replace("secret\"", "secret2\""),
        &oauth[1],
        &format!("{}\nscopes = [\"a\"]", oauth[1]),
        "ca = \"ca.pem\"",
        "pass_authorization = true",
        "cert = \"c.pem\"\nkey = \"k.pem\"",
        "origins = [\"https://b.example\"]",
        "card_keys = \"keys.pem\"",
        "card_ms = \"5min\"",
        "call_ms = 5",
        "call_ms = \"2s\"",
    ] {
        let made_of = of(line).unwrap();
        assert!(!seen.contains(&made_of), "{line}: {made_of}");
        assert!(!made_of.contains("secret"), "{line}");
        seen.push(made_of);
    }
    for (line, expected) in [
        (
            "[agents.b]\nkind = \"a2a\"",
            "p.toml:3: agents.b.upstream: is missing: the agent kind a2a",
        ),
        (
            "[agents.b]\nkind = \"echo\"\n[agents.b.upstream]\nurl = \"https://b\"",
            "p.toml:5: agents.b.upstream: is only for the agent kinds a2a and http",
        ),
        (
            "transports = [\"smtp\"]",
            "p.toml:3: agents.a.upstream.transports: \"smtp\" must be one of",
        ),
        ("version = \"7.0\"", "p.toml:3: agents.a.upstream.version: \"7.0\" is not 1.0"),
        ("basic = \"name\"", "p.toml:3: agents.a.upstream.basic: must be NAME:PASSWORD"),
        (
            "token_url = \"http://a.example\"",
            "p.toml:3: agents.a.upstream.token_url: must be https",
        ),
        ("issuer = \"x\"", "p.toml:3: agents.a.upstream.issuer: "),
        ("token_url = \"https://a\"", "p.toml:1: agents.a.upstream.client_id: is missing"),
        ("client_id = \"a\"", "p.toml:3: agents.a.upstream.client_id: needs token_url or issuer"),
        (
            "bearer = \"a\"\ntoken_url = \"https://a\"",
            "p.toml:3: agents.a.upstream.bearer: cannot be combined with token_url",
        ),
        (
            "pass_authorization = true\nbasic = \"a:b\"",
            "p.toml:3: agents.a.upstream.pass_authorization: cannot be combined with basic",
        ),
        (
            "[agents.b.upstream]\nurl = \"http://b.example\"\npass_authorization = true",
            "p.toml:4: agents.b.upstream.url: must be https",
        ),
        ("cert = \"a\"", "p.toml:3: agents.a.upstream.cert: needs its private key"),
        (
            "origins = [\"https://b/\",\n\"https://b/c\"]",
            "p.toml:4: agents.a.upstream.origins: \"https://b/c\": must be an origin without a \
             path",
        ),
        ("key = \"a\"", "p.toml:3: agents.a.upstream.key: needs its certificate"),
        ("call_ms = 0", "p.toml:3: agents.a.upstream.call_ms: \"0\" must be a time above zero"),
    ] {
        let wrong = of(line).unwrap_err();
        assert!(wrong.starts_with(expected), "{line}: {wrong}");
    }
}

#[test]
fn changed_file_of_upstream_agent_is_detected() {
    let file = std::env::temp_dir().join(format!("peregrine-upstream-{}", std::process::id()));
    for key in ["ca", "card_keys"] {
        let text = format!(
            "[agents.a.upstream]\nurl = \"https://a.example\"\n{key} = \"{}\"\n",
            file.display()
        );
        let made_of = |content: &str| {
            std::fs::write(&file, content).unwrap();
            let (_, serve) = of_file(&text, &[]).unwrap();
            match &serve.agents[0].program {
                Program::Remote(remote) => remote.made_of(),
                other => panic!("{other:?}"),
            }
        };
        let first = made_of("one");
        assert_eq!(made_of("one"), first, "{key}");
        assert_ne!(made_of("two"), first, "{key}");
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn unknown_key_with_unfit_value_gets_no_section_hint() {
    for text in ["[agents.x]\nkind = \"echo\"\nproxy = \"x\"", "networks = 1", "client_ca = 1"] {
        let line = of_file(text, &[]).err().unwrap();
        assert!(line.contains("unknown key") && !line.contains("; "), "{text}: {line}");
    }
}

/// The string literals of a source, except those of tests and comments.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let source = lines.collect::<Vec<_>>().join("\n");
    let source = source.replace("\\\\", "").replace("'\"'", "").replace("\\\"", "'");
    source.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, all);
        } else if !["tests.rs", "schema.rs"].iter().any(|name| path.ends_with(name))
            && path.extension().is_some_and(|end| end == "rs")
        {
            all.push(path);
        }
    }
}

fn long_flags(command: &clap::Command, all: &mut Vec<String>) {
    all.extend(command.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned));
    command.get_subcommands().for_each(|inner| long_flags(inner, all));
}

/// Whether this is the path of a key or a section below these keys.
fn is_key(keys: &'static [tree::Key], path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    let Some(key) = keys.iter().find(|key| key.name == *first) else { return false };
    match key.shape {
        tree::Shape::Section(keys) | tree::Shape::Sections(keys) => is_key(keys(), rest),
        // The next segment is a name.
        tree::Shape::Named(keys) => is_key(keys(), rest.get(1..).unwrap_or_default()),
        _ => rest.is_empty(),
    }
}

#[test]
fn flags_and_keys_in_messages_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![root.join("net/error.rs"), root.join("auth/rules.rs")];
    for folder in ["cli/serve", "engine", "net/server", "push"] {
        sources(&root.join(folder), &mut files);
    }
    let mut flags = Vec::new();
    long_flags(&crate::cli::command::tree(), &mut flags);
    // An option of curl, in the call of the banner.
    flags.push("unix-socket".to_owned());
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.[]-".contains(c);
    // `--tls-*` stands for several flags.
    let is_flag = |existing: &str, flag: &str| {
        existing == flag || flag.ends_with('-') && existing.starts_with(flag)
    };
    let mut count = 0;
    for file in files {
        for text in literals(&std::fs::read_to_string(&file).unwrap()) {
            for word in text.split(|c: char| !is_name(c)) {
                let word = word.trim_end_matches('.');
                let is_table = word.starts_with('[') && word.ends_with(']') && word.len() > 2;
                let path: Vec<&str> = word.trim_matches(['[', ']']).split('.').collect();
                let is_dotted = path.len() > 1
                    && sections::KEYS.iter().any(|key| key.name == path[0])
                    && path.iter().all(|step| !step.is_empty())
                    && !word.ends_with(".md")
                    && !word.ends_with(".toml");
                if let Some(flag) = word.strip_prefix("--").filter(|flag| !flag.is_empty()) {
                    assert!(
                        flags.iter().any(|existing| is_flag(existing, flag)),
                        "--{flag}: {file:?}: {text}"
                    );
                    count += 1;
                } else if is_dotted || is_table {
                    assert!(is_key(sections::KEYS, &path), "{word}: {file:?}: {text}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 40, "{count}");
}
