//! `task`: get, list, cancel, download and push-config.

use std::fs;

use serde_json::json;

use crate::{
    agent::{Clerk, echo},
    fake::{Fake, card, ok},
    run::{User, assert_floor, files},
};

#[test]
fn get_shows_a_task_with_its_artifacts_and_history() {
    let clerk = Clerk::start("get", &[]);
    let user = User::of(&clerk.url());
    let id = user.ok(&["send", "large"]).field("Task").to_owned();
    let task = user.json(&["task", "get", &id, "--history", "5"]);
    assert_eq!(task["id"], id);
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "one large coffee");
    assert_eq!(task["history"][0]["parts"][0]["text"], "large");
    let output = user.ok(&["task", "get", &id, "--history", "5"]);
    assert_floor(&output.out);
    assert_eq!(output.field("Role"), "user");
    assert_eq!(output.field("State"), "COMPLETED");
    assert!(user.ok(&["task", "get", &clerk.url(), &id]).out.contains("one large coffee"));
    let lines = user.ok(&["task", "get", &id, "--stream", "-o", "json"]).lines();
    assert_eq!((lines.len(), &lines[0]["id"]), (1, &task["id"]));
    let error = user.failure(&["task", "get", "none"], "TaskNotFoundError", 1);
    assert_eq!(error["a2aCode"], -32001);
}

#[test]
fn get_with_wait_polls_until_task_ends_or_needs_input() {
    let clerk = Clerk::start("wait", &[]);
    let user = User::of(&clerk.url());
    let id = user.ok(&["send", "slow", "--async"]).field("Task").to_owned();
    assert_ne!(user.ok(&["task", "get", &id]).field("State"), "COMPLETED");
    let output = user.ok(&["task", "get", &id, "--wait", "--poll-interval", "50ms"]);
    assert_eq!(output.field("State"), "COMPLETED");
    let id = user.ok(&["send", "ask"]).field("Task").to_owned();
    assert_eq!(user.ok(&["task", "get", &id, "--watch"]).field("State"), "INPUT_REQUIRED");
}

#[test]
fn timeout_leaves_task_running_and_prints_get_command() {
    let clerk = Clerk::start("timeout", &[]);
    let user = User::of(&clerk.url());
    for extra in [&[][..], &["--transport", "http+json"]] {
        let mut words = vec!["send", "never", "--timeout", "300ms"];
        words.extend(extra);
        let error = user.failure(&words, "A2ACLI_ERR_TIMEOUT", 5);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("of context") && message.contains("(WORKING)"), "{error}");
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.starts_with("peregrine task get") && hint.contains("--wait"), "{error}");
        let id = hint.rsplit(' ').next().unwrap();
        let task = user.json(&["task", "get", id]);
        assert_eq!(task["status"]["state"], "TASK_STATE_WORKING");
        user.failure(&["task", "get", id, "--wait", "--timeout", "1s"], "A2ACLI_ERR_TIMEOUT", 5);
        let output = user.run(&words);
        assert_eq!((output.code, output.field("State")), (Some(5), "WORKING"));
        assert_floor(&output.out);
        assert!(
            !output.field("Task").is_empty() && !output.field("Context").is_empty(),
            "{output:?}"
        );
    }
}

#[test]
fn cancel_shows_the_resulting_state() {
    let clerk = Clerk::start("cancel", &[]);
    let user = User::of(&clerk.url());
    let id = user.ok(&["send", "never", "--async"]).field("Task").to_owned();
    let output = user.ok(&["task", "cancel", &id]);
    assert_floor(&output.out);
    assert_eq!(output.field("State"), "CANCELED");
    assert!(output.err.is_empty(), "what was asked for is no warning: {output:?}");
    // A second cancel changes nothing; a task that has ended otherwise cannot be canceled.
    assert_eq!(user.ok(&["task", "cancel", &id]).field("State"), "CANCELED");
    let ended = user.ok(&["send", "large"]).field("Task").to_owned();
    let error = user.failure(&["task", "cancel", &ended], "TaskNotCancelableError", 1);
    assert_eq!(error["a2aCode"], -32002);
    let id = user.ok(&["send", "never", "--async"]).field("Task").to_owned();
    assert_eq!(user.json(&["task", "cancel", &id])["status"]["state"], "TASK_STATE_CANCELED");
}

#[test]
fn task_list_supports_filters_and_paging() {
    let clerk = Clerk::start("list", &[]);
    let user = User::of(&clerk.url());
    let first = user.json(&["send", "large"])["task"].clone();
    user.ok(&["send", "fail"]);
    user.ok(&["send", "large"]);
    let list = user.json(&["task", "list"]);
    assert_eq!(list["totalSize"], 3);
    assert_eq!(list["tasks"].as_array().unwrap().len(), 3);
    let failed = user.json(&["task", "list", "--status", "failed"]);
    assert_eq!(failed["tasks"].as_array().unwrap().len(), 1);
    let context = first["contextId"].as_str().unwrap();
    let of_context = user.json(&["task", "list", "--context-id", context]);
    assert_eq!(of_context["tasks"][0]["id"], first["id"]);
    assert_eq!(of_context["totalSize"], 1);
    let page = user.json(&["task", "list", "--page-size", "2"]);
    assert_eq!(page["tasks"].as_array().unwrap().len(), 2);
    let token = page["nextPageToken"].as_str().unwrap();
    let rest = user.json(&["task", "list", "--page-size", "2", "--page-token", token]);
    assert_eq!(rest["tasks"].as_array().unwrap().len(), 1);
    let lines = user.ok(&["task", "list", "--stream", "-o", "json"]).lines();
    assert!(lines.len() == 3 && lines.iter().all(|task| task["status"].is_object()), "{lines:?}");
    let output = user.ok(&["task", "list", "--page-size", "2"]);
    assert_floor(&output.out);
    assert_eq!(output.field("Total"), "3");
    // The printed command shows the next page, with the same filters.
    let next: Vec<&str> = output.field("Next").split(' ').skip(1).collect();
    assert!(next.contains(&"--page-size") && next.contains(&"--page-token"), "{output:?}");
    let rest = user.ok(&next);
    assert_eq!(rest.out.matches("Task: ").count(), 1, "{rest:?}");
    assert!(!rest.out.contains("Next: "), "{rest:?}");
    let lines = user.ok(&["task", "list", "--page-size", "2", "--stream", "-o", "json"]);
    assert_eq!(lines.lines().len(), 2);
    assert!(lines.err.starts_with("Next: peregrine task list --page-token "), "{lines:?}");
}

#[test]
fn download_writes_to_dir_and_overwrites_only_by_flag() {
    let clerk = Clerk::start("download", &[]);
    let user = User::of(&clerk.url());
    let id = user.ok(&["send", "files"]).field("Task").to_owned();
    let output = user.ok(&["task", "download", &id, "--dir", "got"]);
    assert_floor(&output.out);
    let folder = user.path("work/got");
    assert_eq!(files(&folder), ["hello.txt", "the bundle.json", "the bundle.txt"]);
    assert_eq!(fs::read_to_string(folder.join("hello.txt")).unwrap(), "hello");
    assert_eq!(output.field("URL"), "https://files.example/big.bin");
    // No file is overwritten without the flag.
    fs::write(folder.join("hello.txt"), "mine").unwrap();
    user.failure(&["task", "download", &id, "--dir", "got"], "A2ACLI_ERR_USAGE", 2);
    assert_eq!(fs::read_to_string(folder.join("hello.txt")).unwrap(), "mine");
    let task = user.json(&["task", "download", &id, "--dir", "got", "--overwrite"]);
    assert_eq!(task["id"], id);
    assert_eq!(fs::read_to_string(folder.join("hello.txt")).unwrap(), "hello");
    let words = ["task", "download", &id, "--dir", "none", "--artifact", "other"];
    let error = user.failure(&words, "A2ACLI_ERR_USAGE", 2);
    assert!(error["message"].as_str().unwrap().contains("must be one of bundle"), "{error}");
    assert!(!user.path("work/none").exists());
}

#[test]
fn push_config_commands_fail_if_push_is_not_declared() {
    let (_server, url) = echo(&["--no-push"]);
    let user = User::of(&url);
    let words = ["task", "push-config", "create", "t", "--url", "https://h.example/hook"];
    user.failure(&words, "PushNotificationNotSupportedError", 1);
    for words in [
        &["task", "push-config", "get", "t", "c"][..],
        &["task", "push-config", "list", "t"],
        &["task", "push-config", "delete", "t", "c"],
    ] {
        user.failure(words, "PushNotificationNotSupportedError", 1);
    }
}

#[test]
fn assume_push_sends_webhooks_without_declared_support() {
    let task = json!({
        "id": "t-1", "contextId": "c-1", "status": { "state": "TASK_STATE_COMPLETED" },
    });
    for streams in [false, true] {
        let task = task.clone();
        let fake = Fake::start(move |request, _, url| match request.rpc() {
            "" => {
                let more = json!({ "capabilities": { "streaming": streams } });
                ok("application/json", &card(url, &more))
            }
            "CreateTaskPushNotificationConfig" => request.result(&request.body["params"]),
            _ => request.result(&json!({ "task": task })),
        });
        let user = User::of(&fake.url);
        let words = ["send", "x", "--push-url", "https://h.example/hook", "--push-token", "t"];
        let error = user.failure(&words, "PushNotificationNotSupportedError", 1);
        assert!(error["hint"].as_str().unwrap().starts_with("--assume push"), "{error}");
        assert!(fake.requests().iter().all(|request| request.rpc().is_empty()));
        let words = [&words[..], &["--assume", "push"]].concat();
        let output = user.ok(&words);
        assert_eq!(
            output.err.matches("does not declare push notifications").count(),
            1,
            "{output:?}"
        );
        let requests = fake.requests();
        let sent =
            requests.iter().find(|request| !request.body["params"]["message"].is_null()).unwrap();
        let config = &sent.body["params"]["configuration"]["taskPushNotificationConfig"];
        let sent = (&config["url"], &config["token"]);
        assert_eq!(sent, (&json!("https://h.example/hook"), &json!("t")), "{requests:?}");
        let words = ["task", "push-config", "create", "t-1", "--url", "https://h.example/hook"];
        user.ok(&[&words[..], &["--assume", "push"]].concat());
    }
    let user = User::new();
    let words = ["send", "http://127.0.0.1:9", "x", "--assume", "streams"];
    user.failure(&words, "A2ACLI_ERR_USAGE", 2);
    let words = ["send", "http://127.0.0.1:9", "x", "--push-token", "t"];
    user.failure(&words, "A2ACLI_ERR_USAGE", 2);
}

#[test]
fn push_configs_are_made_read_listed_and_deleted() {
    let config = json!({ "taskId": "t-1", "id": "c-1", "url": "https://h.example/hook", "token": "x",
            "events": ["status", "final"], "coalesce": true });
    let answered = config.clone();
    let fake = Fake::start(move |request, _, url| match request.rpc() {
        "" => {
            let pushes = json!({ "capabilities": { "pushNotifications": true } });
            ok("application/json", &card(url, &pushes))
        }
        "ListTaskPushNotificationConfigs" => {
            let params = &request.body["params"];
            let next = if params["pageToken"] == "p/2" { "" } else { "p/2" };
            request.result(&json!({ "configs": [answered], "nextPageToken": next }))
        }
        "DeleteTaskPushNotificationConfig" => request.result(&json!({})),
        _ => request.result(&answered),
    });
    let user = User::of(&fake.url);
    let url = "https://h.example/hook";
    let made = user.json(&[
        "task",
        "push-config",
        "create",
        "t-1",
        "--url",
        url,
        "--id",
        "c-1",
        "--token",
        "x",
        "--auth-scheme",
        "Bearer",
        "--auth-credentials",
        "y",
        "--events",
        "status,final",
        "--coalesce",
    ]);
    assert_eq!(made, config);
    let sent = fake.requests().pop().unwrap().body;
    assert_eq!(sent["method"], "CreateTaskPushNotificationConfig");
    assert_eq!(sent["params"]["url"], url, "{sent}");
    assert_eq!(sent["params"]["authentication"], json!({ "scheme": "Bearer", "credentials": "y" }));
    assert_eq!(sent["params"]["events"], json!(["status", "final"]));
    assert_eq!(sent["params"]["coalesce"], true);
    assert_eq!(user.json(&["task", "push-config", "get", "t-1", "c-1"]), config);
    let list = user.json(&["task", "push-config", "list", "t-1"]);
    assert_eq!(list["configs"], json!([config]));
    assert_eq!(user.json(&["task", "push-config", "delete", "t-1", "c-1"]), json!({}));
    let output = user.ok(&["task", "push-config", "list", &fake.url, "t-1"]);
    assert_floor(&output.out);
    assert_eq!((output.field("Push config"), output.field("Token")), ("c-1", "***"));
    assert_eq!((output.field("Events"), output.field("Coalesce")), ("status,final", "yes"));
    // The command of the next page, until there is none.
    let output = user.ok(&["task", "push-config", "list", &fake.url, "t-1", "--page-size", "1"]);
    let next: Vec<&str> = output.field("Next").split(' ').skip(1).collect();
    assert!(next.contains(&"t-1") && next.contains(&"--page-token"), "{output:?}");
    let output = user.ok(&next);
    let sent = fake.requests().pop().unwrap().body;
    assert_eq!(
        (&sent["params"]["pageSize"], &sent["params"]["pageToken"]),
        (&json!(1), &json!("p/2"))
    );
    assert!(!output.out.contains("Next: "), "{output:?}");
    let output = user.ok(&["task", "push-config", "delete", "t-1", "c-1"]);
    assert_eq!((output.field("Task"), output.field("Deleted")), ("t-1", "c-1"));
}

#[test]
fn push_config_over_0_3_gets_a_generated_id() {
    let fake = Fake::start(|request, _, url| match request.method.as_str() {
        "GET" => {
            let card = json!({
                "name": "old", "description": "", "version": "1", "protocolVersion": "0.3.0",
                "url": url, "preferredTransport": "HTTP+JSON",
                "capabilities": { "pushNotifications": true },
                "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
            });
            ok("application/json", &card.to_string())
        }
        _ => ok("application/json", &request.body["config"].to_string()),
    });
    let user = User::of(&fake.url).with("A2ACLI_A2A_VERSION", "0.3");
    let words = ["task", "push-config", "create", "t-1", "--url", "https://h.example/hook"];
    let ids = [0, 1].map(|_| {
        let made = user.json(&words);
        let sent = fake.requests().pop().unwrap().body;
        assert_eq!((&made["id"], &made["taskId"]), (&sent["configId"], &json!("t-1")), "{made}");
        sent["configId"].as_str().unwrap().to_owned()
    });
    assert!(ids[0].len() == 36 && ids[0] != ids[1], "{ids:?}");
    let words = [&words[..], &["--id", "c-1"]].concat();
    assert_eq!(user.json(&words)["id"], "c-1");
}
