//! Help, versions, completions, manual pages, and the errors for wrong words.

use crate::{
    agent::echo,
    fake::{Fake, status},
    run::{User, files},
};

const COMMANDS: &[&[&str]] = &[
    &["send"],
    &["card", "get"],
    &["card", "lint"],
    &["card", "verify"],
    &["task", "get"],
    &["task", "list"],
    &["task", "cancel"],
    &["task", "subscribe"],
    &["task", "download"],
    &["task", "push-config", "create"],
    &["task", "push-config", "get"],
    &["task", "push-config", "list"],
    &["task", "push-config", "delete"],
    &["chat"],
    &["auth", "login"],
    &["config", "show"],
];

#[test]
fn every_command_has_a_help_with_its_defaults() {
    let user = User::new();
    for command in COMMANDS {
        let mut words = command.to_vec();
        words.push("--help");
        let help = user.ok(&words).out;
        assert!(help.contains(&format!("Usage: peregrine {}", command.join(" "))), "{help}");
        for flag in [
            "-a, --agent-card",
            "-o, --output <text|json>",
            "[default: text]",
            "--stream",
            "--poll-interval",
            "[default: 2s]",
            "--insecure",
            "-v, --version",
            "A2ACLI_BEARER",
        ] {
            assert!(help.contains(flag), "{flag} in {help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        words.pop();
        words.insert(0, "help");
        assert_eq!(user.ok(&words).out, help);
        words.remove(0);
        words.push("-v");
        let version = concat!("peregrine ", env!("CARGO_PKG_VERSION"), "\n");
        assert_eq!(user.ok(&words).out, version);
    }
}

#[test]
fn every_canonical_flag_is_accepted() {
    let user = User::new();
    let words = [
        "config",
        "show",
        "-o",
        "json",
        "--a2a-version",
        "1.0",
        "-a",
        "h",
        "--async",
        "--bearer",
        "b",
        "--api-key",
        "k",
        "--context-id",
        "c",
        "--task-id",
        "t",
        "--debug",
        "--insecure",
        "--metadata",
        "{}",
        "--poll-interval",
        "1s",
        "--timeout",
        "2s",
        "--stream",
        "--svc-param",
        "a:b",
        "--transport",
        "grpc",
        "--verbose",
        "--wait",
        "--watch",
        "--no-wait",
        "--return-immediately",
    ];
    let shown = user.run(&words);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let shown = shown.document();
    for name in ["a2a-version", "agent-card", "async", "stream", "transport", "wait"] {
        assert_eq!(shown[name]["source"], format!("flag --{name}"), "{shown}");
    }
}

#[test]
fn invalid_arguments_give_a_usage_error_in_both_formats() {
    let user = User::new();
    for (words, expected) in [
        (&["send", "--nope"][..], "unknown flag --nope"),
        (&["send", "hello"], "missing agent: \"hello\" is used as the TEXT"),
        (&["task", "get", "http://h"], "missing agent: \"http://h\" is used as the ID"),
        (&["card", "verify", "h", "--jwks", "no/such"], "cannot read no/such"),
        (&["send", "-a", "h", "r", "hello"], "two agents are given"),
        (&["send", "-a", "h"], "nothing to send"),
        (&["send", "-a", "h", "--media-type", "x/y", "t"], "--media-type must follow"),
        (&["send", "-a", "h", "--file", "no/such"], "cannot read no/such"),
        (&["send", "-a", "ftp://h", "t"], "must be an http, https or file URL"),
        (&["send", "-a", "h", "t", "--metadata", "[1]"], "not a JSON object"),
        (&["send", "-a", "h", "t", "--async", "--wait"], "cannot be combined"),
        (&["send", "-a", "h", "t", "--timeout", "soon"], "not a time"),
        (&["send", "-a", "h", "t", "--transport", "smtp"], "not one of jsonrpc"),
        (&["send", "-a", "h", "t", "--svc-param", "x"], "KEY:VALUE"),
        (&["send", "-a", "h", "t", "--cert", "x"], "add --key FILE"),
        (&["task", "get", "-a", "h"], "ID is missing"),
        (&["task", "gett"], "did you mean task get?"),
        (&["card", "gt"], "did you mean card get?"),
        (&["send", "-a", "h", "t", "--a2a-version", "2.0"], "not 1.0, 0.3, 0.2 or 0.1"),
        (&["send", "-a", "h", "t", "--dialect", "klingon"], "not a dialect"),
        (&["send", "-a", "h", "t", "--traceparent", "00-1-2-3"], "not a traceparent"),
        (&["task"], "available: get, list, cancel"),
        (&["task", "get", "--history", "many", "-a", "h", "t"], "not a number"),
        (&["task", "list", "-a", "h", "--status", "done"], "must be one of SUBMITTED"),
        (&["task", "list", "-a", "h", "--status", "unspecified"], "must be one of SUBMITTED"),
        (
            &["auth", "login", "h", "--client-id", "me", "--token-url", "htp://me:x@h/t?s"],
            "--token-url: \"htp://...@h/t\": the URL must begin with http",
        ),
        (&["config"], "available: show"),
        (&["push"], "available: dead"),
        (&["push", "dead"], "available: list, show, replay, drop"),
        (&["push", "dead", "list"], "missing the server's address"),
        (&["push", "dead", "replay", "--admin", "h:1"], "missing the number of a dead letter"),
        (&["push", "dead", "drop", "x", "--admin", "h:1"], "must be the number of a dead letter"),
        (&["push", "dead", "drop", "1", "--all", "--admin", "h:1"], "cannot be combined"),
        (&["push", "dead", "list", "--admin", "h:1/x"], "must not have a path"),
        (&["push", "dead", "list", "--admin", "h:1", "--timeout", "soon"], "not a time"),
        (&["admin", "task"], "available: list, cancel, fail"),
        (&["admin", "task", "list"], "missing the server's address"),
        (&["admin", "task", "fail", "--admin", "h:1"], "<ID>"),
        (&["admin", "task", "list", "--admin", "h:1", "--api-key", "k"], "in plain text"),
        (&["task", "push-config", "create", "-a", "h", "t"], "--url <URL>"),
        (&["card"], "available: get, lint, verify"),
        (&["send", "h", "a", "--verbose", "b"], "too many arguments: unexpected \"b\""),
        (&["send", "h", "hi", "--async", "true"], "too many arguments: unexpected \"true\""),
        (&["task", "get", "h", "x", "--verbose", "y"], "too many arguments: unexpected \"y\""),
        (&["chat", "h", "--verbose", "x"], "too many arguments: unexpected \"x\""),
    ] {
        let text = user.run(words);
        assert_eq!(text.code, Some(2), "{words:?}: {text:?}");
        assert!(text.out.is_empty() && text.err.contains(expected), "{words:?}: {text:?}");
        assert!(text.err.contains("Code: A2ACLI_ERR_USAGE\n"), "{text:?}");
        let error = user.failure(words, "A2ACLI_ERR_USAGE", 2);
        assert!(error["message"].as_str().unwrap().contains(expected), "{error}");
        // The format may come from the environment, and the flag may be anywhere.
        let user = User::new().with("A2ACLI_OUTPUT", "json");
        assert_eq!(user.run(words).document()["error"]["code"], "A2ACLI_ERR_USAGE");
    }
}

#[test]
fn invalid_flags_fail_before_any_request_is_sent() {
    let fake = Fake::start(|_, _, _| status("500 No", "text/plain", "no"));
    let user = User::of(&fake.url);
    for (words, expected) in [
        (&["send", "hello", "--poll-interval", "abc"][..], "not a time"),
        (&["task", "subscribe", "t", "--last-event-id", "abc"], "not a number"),
        (&["task", "push-config", "create", "t", "--url", "notaurl"], "--url \"notaurl\""),
        (&["task", "cancel", "t", "--metadata", "[1]"], "not a JSON object"),
        (&["send", "hello", "--stream", "--async"], "cannot be combined"),
    ] {
        let error = user.failure(words, "A2ACLI_ERR_USAGE", 2);
        assert!(error["message"].as_str().unwrap().contains(expected), "{error}");
    }
    assert!(fake.requests().is_empty(), "{:?}", fake.requests());
}

#[test]
fn a_misspelled_command_gets_a_suggestion() {
    let user = User::new();
    for (words, expected) in [
        (&["sedn"][..], "did you mean send?"),
        (&["tsak", "list"], "did you mean task?"),
        (&["subscribe"], "did you mean task subscribe?"),
        (&["lint"], "did you mean card lint?"),
        (&["push-config"], "did you mean task push-config?"),
        (&["card", "show"], "did you mean card get"),
        (&["card", "http://a.example:1"], "did you mean card get http://a.example:1?"),
        (&["frobnicate"], "see peregrine --help"),
        (&["get"], "did you mean card get, or task get, or task push-config get?"),
    ] {
        let output = user.run(words);
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.err.contains(expected), "{output:?}");
    }
}

#[test]
fn dead_letter_help_names_admin_timeout_and_reasons() {
    let user = User::new();
    for command in ["list", "show", "replay", "drop"] {
        let help = user.ok(&["push", "dead", command, "--help"]).out;
        for expected in ["[default: 30s]", "started with --admin", "given_up", "task_left"] {
            assert!(help.contains(expected), "{expected} in {help}");
        }
        assert!(!help.contains("for ever"), "{help}");
    }
    let serve = user.ok(&["serve", "--help"]).out;
    assert!(serve.contains("/push/dead") && serve.contains("up to four"), "{serve}");
}

#[test]
fn short_help_lists_only_the_main_flags_of_a_command() {
    let user = User::new();
    let short = |words: &[&str]| user.ok(&[words, &["-h"]].concat()).out;
    for words in [&["send"][..], &["task", "get"], &["card", "get"], &["auth", "login"]] {
        let text = short(words);
        assert!(text.contains("--agent-card") && text.contains("'--help'"), "{text}");
        assert!(!text.contains("--dialect") && text.lines().count() < 50, "{text}");
    }
    assert!(short(&["send"]).contains("--task-id") && short(&["send"]).contains("--stream"));
    assert!(!short(&["card", "get"]).contains("--task-id"));
    for flag in ["--client-id", "--device-url", "--scope"] {
        assert!(short(&["auth", "login"]).contains(flag), "{flag}");
    }
    let long = user.ok(&["send", "--help"]).out;
    for heading in ["The agent:", "Output:", "Waiting:", "The request:", "Credentials:", "TLS:"] {
        assert!(long.contains(&format!("\n{heading}\n")), "{heading} in {long}");
    }
    let words = long.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("peregrine config show"), "{long}");
}

#[test]
fn lone_word_with_parts_is_the_agent_if_none_is_set() {
    let (_server, url) = echo(&[]);
    let output = User::new().ok(&["send", &url, "--text", "hello"]);
    assert_eq!(output.block("Text"), "hello");
    let output = User::of(&url).ok(&["send", "first", "--text", "second"]);
    assert_eq!(output.block("Text"), "firstsecond");
}

#[cfg(target_os = "linux")]
#[test]
fn failed_write_to_stdout_exits_with_an_error() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = |out: std::process::Stdio| {
        User::new().command(&["config", "show"]).stdout(out).status().unwrap().code()
    };
    assert_eq!(status(full().into()), Some(1));
    assert_eq!(status(std::process::Stdio::null()), Some(0));
}

#[test]
fn missing_agent_hint_shows_flag_and_positional_form() {
    let error = User::new().failure(&["send", "hello"], "A2ACLI_ERR_USAGE", 2);
    let hint = error["hint"].as_str().unwrap();
    assert!(
        hint.contains("peregrine send -a REF") && hint.contains("peregrine send REF"),
        "{hint}"
    );
}

#[test]
fn completions_and_manual_pages_are_made() {
    let user = User::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = user.ok(&["completion", shell]).out;
        assert!(script.contains("peregrine") && script.contains("push-config"), "{shell}");
        assert!(script.contains("agent-card"), "{shell}");
    }
    let script = user.ok(&["completion", "bash"]).out;
    for (flag, offered) in [
        ("transport", "compgen -W \"jsonrpc http+json grpc websocket\""),
        ("output", "compgen -W \"text json\""),
        ("a2a-version", "compgen -W \"1.0 0.3 0.2 0.1\""),
        ("flow", "compgen -W \"device client-credentials\""),
        ("ca", "compgen -f"),
        ("bearer", "COMPREPLY=(\"${cur}\")"),
    ] {
        let at = script.find(&format!("--{flag})\n")).unwrap();
        let case = &script[at..at + script[at..].find(";;").unwrap()];
        assert!(case.contains(offered), "{flag}: {case}");
    }
    let refused = user.run(&["completion", "csh"]);
    assert!(refused.code == Some(2) && refused.err.contains("unknown shell"), "{refused:?}");
    assert!(user.ok(&["man"]).out.contains(".TH peregrine 1"));
    user.ok(&["man", "pages"]);
    let page = std::fs::read_to_string(user.path("work/pages/peregrine-send.1")).unwrap();
    assert!(page.contains("OAuth: the client id"), "{page}");
    let pages = files(&user.path("work/pages"));
    for page in ["peregrine.1", "peregrine-serve.1", "peregrine-task-push-config-create.1"] {
        assert!(pages.iter().any(|name| name == page), "{pages:?}");
    }
}
