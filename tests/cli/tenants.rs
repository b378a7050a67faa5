//! Tenants as a user names them: by `--tenant` and by the URL of a tenant's card.

use serde_json::{Value, json};

use crate::{
    fake::{Fake, ReceivedRequest, card, ok},
    run::User,
};

/// An agent that answers every method over JSON-RPC, and names the tenant `own` in its interface.
fn every_method() -> Fake {
    Fake::start(|request, _, url| {
        let state = if request.rpc() == "GetTask" { "COMPLETED" } else { "WORKING" };
        let state = format!("TASK_STATE_{state}");
        let task = json!({ "id": "t-1", "contextId": "c-1", "status": { "state": state } });
        let config = json!({ "id": "p-1", "taskId": "t-1", "url": "https://hooks.example/" });
        let card = || {
            let interface = json!({
                "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "own",
            });
            card(
                url,
                &json!({
                    "supportedInterfaces": [interface],
                    "capabilities":
                        { "streaming": true, "pushNotifications": true, "extendedAgentCard": true },
                }),
            )
        };
        match request.rpc() {
            "" => ok("application/json", &card()),
            // A stream that breaks after its first event is resumed by a subscription.
            "SendStreamingMessage" => request.events(&[json!({ "task": task })]),
            "SendMessage" => request.result(&json!({ "task": task })),
            "ListTasks" => request.result(&json!({
                "tasks": [task], "nextPageToken": "", "pageSize": 1, "totalSize": 1,
            })),
            "CreateTaskPushNotificationConfig" | "GetTaskPushNotificationConfig" => {
                request.result(&config)
            }
            "ListTaskPushNotificationConfigs" => request.result(&json!({ "configs": [config] })),
            "DeleteTaskPushNotificationConfig" => request.result(&json!({})),
            "GetExtendedAgentCard" => {
                request.result(&serde_json::from_str::<Value>(&card()).unwrap())
            }
            "SubscribeToTask" => request.events(&[json!({ "statusUpdate": {
                "taskId": "t-1", "contextId": "c-1", "status": { "state": "TASK_STATE_COMPLETED" },
            } })]),
            _ => request.result(&task),
        }
    })
}

/// The tenants that the calls named.
fn named(fake: &Fake) -> Vec<(String, Value)> {
    let calls = fake.requests().into_iter().filter(|request| request.method == "POST");
    calls
        .map(|request: ReceivedRequest| {
            (request.rpc().to_owned(), request.body["params"]["tenant"].clone())
        })
        .collect()
}

#[test]
fn every_command_sends_the_tenant_in_every_request() {
    const PUSH: &[&str] = &["task", "push-config"];
    for (words, methods) in [
        // It waits by reading the task.
        (&["send", "x", "--poll-interval", "10ms"][..], &["SendStreamingMessage", "GetTask"][..]),
        (&["send", "x", "--stream"], &["SendStreamingMessage", "SubscribeToTask"]),
        (&["send", "x", "--async"], &["SendMessage"]),
        (&["task", "get", "t-1"], &["GetTask"]),
        (&["task", "list"], &["ListTasks"]),
        (&["task", "cancel", "t-1"], &["CancelTask"]),
        (&["task", "subscribe", "t-1"], &["SubscribeToTask"]),
        (&["task", "download", "t-1"], &["GetTask"]),
        (
            &[PUSH, &["create", "t-1", "--url", "https://hooks.example/"]].concat(),
            &["CreateTaskPushNotificationConfig"],
        ),
        (&[PUSH, &["get", "t-1", "p-1"]].concat(), &["GetTaskPushNotificationConfig"]),
        (&[PUSH, &["list", "t-1"]].concat(), &["ListTaskPushNotificationConfigs"]),
        (&[PUSH, &["delete", "t-1", "p-1"]].concat(), &["DeleteTaskPushNotificationConfig"]),
        (&["card", "get", "--extended"], &["GetExtendedAgentCard"]),
    ] {
        for (flag, tenant) in [(&["--tenant", "acme"][..], "acme"), (&[], "own")] {
            let fake = every_method();
            User::of(&fake.url).ok(&[words, flag].concat());
            let calls = named(&fake);
            assert!(calls.iter().all(|(_, named)| named == tenant), "{words:?} {flag:?} {calls:?}");
            let was_called = |method: &&&str| calls.iter().any(|(called, _)| called == **method);
            assert!(methods.iter().all(|method| was_called(&method)), "{words:?} {calls:?}");
        }
    }
    // A chat, and the conformance checks, which send many messages.
    let fake = every_method();
    let user = User::of(&fake.url).with("A2ACLI_TENANT", "acme");
    user.run_with(&["chat", "--poll-interval", "10ms"], "x\n");
    user.run(&["conformance", "--timeout", "60s"]);
    let calls = named(&fake);
    assert!(calls.len() > 6 && calls.iter().all(|(_, tenant)| tenant == "acme"), "{calls:?}");
}

#[test]
fn tenant_is_read_from_environment_and_config_file() {
    let user = User::new().with("A2ACLI_TENANT", "acme");
    let shown = user.ok(&["config", "show"]);
    assert_eq!(shown.field("tenant"), "acme (environment A2ACLI_TENANT)");
    let file = user.write("agent.env", "A2ACLI_TENANT=other\n");
    let words = ["config", "show", "--config", file.to_str().unwrap()];
    assert_eq!(User::new().json(&words)["tenant"]["value"], "other");
    // The suggested next command has the same tenant.
    let fake = every_method();
    let output = User::new().ok(&["send", &fake.url, "x", "--async", "--tenant", "acme"]);
    assert!(format!("{}{}", output.out, output.err).contains("--tenant acme"), "{output:?}");
}

/// An agent of 0.3 with its interface at this path.
fn of_03(path: &'static str) -> Fake {
    Fake::start(move |request, _, url| match request.rpc() {
        "" => {
            let card = json!({
                "name": "fake", "description": "", "version": "1", "protocolVersion": "0.3.0",
                "url": format!("{url}{path}"), "preferredTransport": "JSONRPC", "capabilities": {},
                "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
            });
            ok("application/json", &card.to_string())
        }
        _ => request.result(&json!({
            "kind": "message", "messageId": "m-1", "role": "agent",
            "parts": [{ "kind": "text", "text": "hello" }],
        })),
    })
}

#[test]
fn tenant_flag_over_0_3_requires_a_tenant_url() {
    const OLD: [&str; 4] = ["send", "x", "--a2a-version", "0.3"];
    let fake = of_03("/rpc");
    let words = [&OLD[..], &["--tenant", "acme"]].concat();
    let error = User::of(&fake.url).failure(&words, "A2ACLI_ERR_USAGE", 2);
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("of A2A 0.3 at") && message.contains("cannot name a tenant"),
        "{error}"
    );
    assert!(error["hint"].as_str().unwrap().contains("/tenants/acme"), "{error}");
    assert!(named(&fake).is_empty());
    // A tenant in the URL takes precedence.
    let fake = of_03("/a/tenants/own?k=v");
    let user = User::of(&fake.url);
    user.ok(&OLD);
    user.ok(&words);
    let requests = fake.requests().into_iter().filter(|request| request.method == "POST");
    let targets: Vec<String> = requests.map(|request| request.target).collect();
    assert_eq!(targets, ["/a/tenants/own?k=v", "/a/tenants/acme?k=v"]);
}

#[test]
fn tenant_flag_without_effect_gives_a_warning() {
    let fake = every_method();
    for words in [&["card", "get"][..], &["card", "lint"], &["card", "verify"]] {
        let words = [words, &["--tenant", "acme"]].concat();
        let output = User::of(&fake.url).run(&words);
        assert!(output.err.contains("--tenant has no effect: the card of a tenant"), "{output:?}");
        // The environment variable applies to other commands.
        let output = User::of(&fake.url).with("A2ACLI_TENANT", "acme").run(&words[..2]);
        assert!(!output.err.contains("no effect"), "{output:?}");
    }
}
