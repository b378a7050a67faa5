//! Push configurations and their posts (A2A 1.0 §3.1.7 to §3.1.10, §4.3.3): the test acts as the
//! webhook worker.

use std::{
    sync::{Arc, Mutex},
    task::Waker,
};

use peregrine::{
    agent::{Agent, Deferred, Job, Profile, Turn, echo::Echo},
    auth::{AuthRules, Authenticator, Callers, KeyRule, KnownCaller, SecretDigest},
    engine::{
        NextRequest, Outbox, Pace, PostOutcome, PostRequest, PushChallenge, PushSettings,
        PushTargets, Setup,
    },
    limits::Limits,
    model::{ArtifactBuf, MessageBuf, PartsBuf, PushFilter, TaskState},
    push::signature::{PostSigner, SignedPost},
};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{Gen, OutgoingMessage, V01, V1, V03, get, post, rpc, say},
    echo,
};

const URL: &str = "https://hooks.example/a2a";

/// A server with webhooks.
fn lab() -> Lab {
    Lab::new(setup())
}

fn setup() -> Setup {
    Setup { push: Some(PushSettings::default()), ..Setup::default() }
}

/// A post as its receiver sees it.
struct Received {
    request: PostRequest,
    fields: Vec<(String, String)>,
    body: Value,
}

impl Received {
    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }
}

/// Takes posts from the engine, in place of a webhook worker with sockets.
struct WebhookDriver(Arc<dyn Outbox>);

impl WebhookDriver {
    fn of(lab: &Lab) -> WebhookDriver {
        WebhookDriver(lab.engine.outbox().expect("webhooks are served"))
    }

    /// The next post, if there is one now.
    fn next(&self, lab: &Lab) -> Option<Received> {
        let mut request = PostRequest::default();
        match self.0.next(lab.now, Waker::noop(), &mut request) {
            NextRequest::Post => {}
            NextRequest::At(_) | NextRequest::Never => return None,
        }
        let fields = request.fields.get().iter();
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let body = serde_json::from_slice(&request.body).unwrap();
        Some(Received { request, fields, body })
    }

    fn done(&self, lab: &Lab, post: &Received, outcome: PostOutcome) {
        self.0.done(&post.request, outcome, lab.now, 1 << 60);
    }

    /// Delivers all pending posts.
    fn deliver(&self, lab: &Lab) -> Vec<Received> {
        let mut delivered = Vec::new();
        while let Some(post) = self.next(lab) {
            self.done(lab, &post, PostOutcome::Delivered);
            delivered.push(post);
        }
        delivered
    }
}

fn failed(why: &str) -> PostOutcome {
    PostOutcome::Failed { why: why.to_owned(), retry_after_ms: None }
}

/// Params of a send with a webhook.
fn with_webhook(generation: Gen, text: &str, config: Value) -> Value {
    let mut params = generation.params(say(text));
    match generation {
        V01 => params["pushNotification"] = config,
        V03 => params["configuration"]["pushNotificationConfig"] = config,
        V1 => params["configuration"]["taskPushNotificationConfig"] = config,
    }
    params
}

/// Creates a task that runs for ten seconds.
fn long_task(lab: &mut Lab) -> String {
    let mut params = V1.params(say("hold:10000:4"));
    params["configuration"]["returnImmediately"] = json!(true);
    let result = lab.result(V1.send(), &params);
    result["task"]["id"].as_str().unwrap().to_owned()
}

fn set_v1(lab: &mut Lab, task: &str, id: &str) -> Value {
    let params = json!({"taskId": task, "id": id, "url": URL});
    lab.call("CreateTaskPushNotificationConfig", &params)
}

fn state_of(body: &Value) -> &str {
    let status = body.get("statusUpdate").or(body.get("task")).unwrap_or(body);
    status["status"]["state"].as_str().unwrap_or_default()
}

#[test]
fn events_of_a_new_task_are_posted_in_stream_order() {
    let mut lab = lab();
    let config = json!({"url": URL, "token": "tell", "id": "mine",
        "authentication": {"scheme": "Bearer", "credentials": "secret"}});
    let result = lab.result(V1.send(), &with_webhook(V1, "stream:5", config));
    let driver = WebhookDriver::of(&lab);
    let posts = driver.deliver(&lab);
    let bodies: Vec<&Value> = posts.iter().map(|post| &post.body).collect();
    assert_eq!(bodies.len(), 6, "{bodies:?}");
    assert_eq!(bodies[0]["task"]["id"], result["task"]["id"]);
    assert_eq!(state_of(bodies[0]), "TASK_STATE_SUBMITTED");
    assert_eq!(state_of(bodies[1]), "TASK_STATE_WORKING");
    assert!(bodies[2..5].iter().all(|body| body["artifactUpdate"].is_object()), "{bodies:?}");
    assert_eq!(state_of(bodies[5]), "TASK_STATE_COMPLETED");
    let mut ids: Vec<&str> =
        posts.iter().map(|post| post.field("A2A-Notification-Id").unwrap()).collect();
    let events: Vec<u64> =
        posts.iter().map(|post| post.field("A2A-Event-Id").unwrap().parse().unwrap()).collect();
    assert!(events.is_sorted_by(|a, b| a < b), "{events:?}");
    for post in &posts {
        assert_eq!(post.request.url, URL);
        assert_eq!(post.field("Content-Type"), Some("application/a2a+json"));
        assert_eq!(post.field("A2A-Version"), Some("1.0"));
        assert_eq!(post.field("Authorization"), Some("Bearer secret"));
        assert_eq!(post.field("X-A2A-Notification-Token"), Some("tell"));
        let trace = post.field("traceparent").unwrap();
        assert_eq!((trace.len(), &trace[..3]), (55, "00-"));
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 6);
    assert!(driver.next(&lab).is_none());
}

#[test]
fn repeated_inline_webhook_creates_one_configuration() {
    let mut lab = lab();
    let task = long_task(&mut lab);
    let mut send = |id: &str, config: Value| {
        let mut params = with_webhook(V1, "hold:10000:4", config);
        params["message"]["messageId"] = json!(id);
        params["message"]["taskId"] = json!(task);
        params["configuration"]["returnImmediately"] = json!(true);
        lab.result(V1.send(), &params);
        let listed = lab.result("ListTaskPushNotificationConfigs", &json!({"taskId": task}));
        let ids = listed["configs"].as_array().unwrap().iter().map(|config| config["id"].clone());
        ids.collect::<Vec<_>>()
    };
    let first = send("m-1", json!({"url": URL, "token": "a"}));
    assert_eq!(send("m-2", json!({"url": URL, "token": "a"})), first);
    // Different content or a set without an id creates another configuration.
    let both = send("m-3", json!({"url": URL, "token": "b"}));
    assert_eq!((both.len(), &both[0]), (2, &first[0]));
    let params = json!({"taskId": task, "url": URL, "token": "a"});
    let set = lab.result("CreateTaskPushNotificationConfig", &params);
    assert!(!both.contains(&set["id"]), "{set}");
}

#[test]
fn posts_join_the_trace_of_the_call_that_set_the_webhook() {
    let mut lab = lab();
    let driver = WebhookDriver::of(&lab);
    let trace = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
    let mut parents = |traceparent: Option<&str>| {
        let body = rpc(V1.send(), &with_webhook(V1, "hi", json!({"url": URL})));
        let fields: Vec<_> = traceparent.map(|value| ("traceparent", value)).into_iter().collect();
        assert_eq!(lab.ask(&post("/", &fields, &body)).status, 200);
        let posts = driver.deliver(&lab);
        assert!(posts.len() > 1);
        posts.iter().map(|post| post.field("traceparent").unwrap().to_owned()).collect::<Vec<_>>()
    };
    for flags in ["00", "01"] {
        let traceparent = format!("00-{trace}-{flags}");
        assert!(parents(Some(&traceparent)).iter().all(|parent| *parent == traceparent));
    }
    // Unknown flags and invalid trace contexts are not passed on.
    assert_eq!(parents(Some(&format!("00-{trace}-ff")))[0], format!("00-{trace}-01"));
    for none in [None, Some("00-x"), Some("")] {
        let parents = parents(none);
        // One trace for a task, and a span for each post.
        assert!(parents.iter().all(|parent| parent.len() == 55 && parent.ends_with("-00")));
        assert_eq!(parents[0][..36], parents[1][..36]);
        assert_ne!(parents[0], parents[1]);
    }
}

#[test]
fn pending_events_before_1_0_are_merged_into_one_post() {
    for (generation, version) in [(V03, "0.3"), (V01, "0.1")] {
        let mut lab = lab();
        let config = json!({"url": URL, "token": "tell"});
        let result = lab.result(generation.send(), &with_webhook(generation, "stream:9", config));
        let posts = WebhookDriver::of(&lab).deliver(&lab);
        assert_eq!(posts.len(), 1, "{generation:?}");
        let post = &posts[0];
        assert_eq!(post.body, result, "{generation:?}");
        assert_eq!(post.field("Content-Type"), Some("application/json"));
        assert_eq!(post.field("A2A-Version"), Some(version));
        assert_eq!(post.field("Authorization"), None);
    }
}

#[test]
fn webhook_of_a_running_task_gets_only_later_events() {
    let mut lab = lab();
    let task = long_task(&mut lab);
    let made = set_v1(&mut lab, &task, "");
    let id = made["result"]["id"].as_str().unwrap().to_owned();
    assert_eq!(id.len(), 36, "{made}");
    assert_eq!(made["result"]["taskId"], *task);
    let driver = WebhookDriver::of(&lab);
    assert!(driver.next(&lab).is_none());
    lab.pass(10_000);
    let states: Vec<String> =
        driver.deliver(&lab).iter().map(|post| state_of(&post.body).to_owned()).collect();
    assert_eq!(states.first().unwrap(), "TASK_STATE_WORKING");
    assert_eq!(states.last().unwrap(), "TASK_STATE_COMPLETED");
    // A finished task accepts a configuration, and nothing is sent.
    assert_eq!(set_v1(&mut lab, &task, "late")["result"]["id"], "late");
    assert!(driver.next(&lab).is_none());
}

#[test]
fn configurations_are_read_listed_by_page_replaced_and_deleted() {
    let mut lab = lab();
    let task = long_task(&mut lab);
    for id in ["a", "b", "c"] {
        assert_eq!(set_v1(&mut lab, &task, id)["result"]["url"], URL);
    }
    let one = json!({"taskId": task, "id": "b"});
    assert_eq!(lab.result("GetTaskPushNotificationConfig", &one)["id"], "b");
    let mut ids = Vec::new();
    let mut page = json!({"taskId": task, "pageSize": 2});
    loop {
        let listed = lab.result("ListTaskPushNotificationConfigs", &page);
        ids.extend(listed["configs"].as_array().unwrap().iter().map(|one| one["id"].clone()));
        let Some(token) = listed.get("nextPageToken") else { break };
        page["pageToken"] = token.clone();
    }
    assert_eq!(json!(ids), json!(["a", "b", "c"]));
    page["pageToken"] = json!("ffff.1");
    assert_eq!(lab.code("ListTaskPushNotificationConfigs", &page), -32602);
    page["pageToken"] = json!("?");
    assert_eq!(lab.code("ListTaskPushNotificationConfigs", &page), -32602);
    assert_eq!(lab.result("DeleteTaskPushNotificationConfig", &one), Value::Null);
    assert_eq!(lab.result("DeleteTaskPushNotificationConfig", &one), Value::Null);
    assert_eq!(lab.code("GetTaskPushNotificationConfig", &one), -32001);
    let unknown = json!({"taskId": "none", "id": "b", "url": URL});
    for method in ["Create", "Get", "Delete"] {
        let method = format!("{method}TaskPushNotificationConfig");
        assert_eq!(lab.code(&method, &unknown), -32001, "{method}");
    }
    assert_eq!(lab.code("ListTaskPushNotificationConfigs", &unknown), -32001);
}

#[test]
fn every_version_manages_the_same_push_configurations() {
    let mut lab = lab();
    let task = long_task(&mut lab);
    let config = json!({"url": URL, "token": "tell", "authentication":
        {"schemes": ["Bearer"], "credentials": "secret"}});
    let set = json!({"taskId": task, "pushNotificationConfig": config});
    let made = lab.result("tasks/pushNotificationConfig/set", &set);
    assert_eq!(made["pushNotificationConfig"]["id"], "default");
    assert!(!made.to_string().contains("secret"), "credentials are not read back: {made}");
    let named = json!({"id": task});
    for method in ["tasks/pushNotificationConfig/get", "tasks/pushNotification/get"] {
        let read = lab.result(method, &named);
        assert_eq!(read["pushNotificationConfig"]["url"], URL, "{method}");
    }
    let listed = lab.result("tasks/pushNotificationConfig/list", &named);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let v1 = lab.result("ListTaskPushNotificationConfigs", &json!({"taskId": task}));
    assert_eq!(v1["configs"][0]["id"], "default");
    assert_eq!(v1["configs"][0]["authentication"]["scheme"], "Bearer");
    let delete = json!({"id": task, "pushNotificationConfigId": "default"});
    assert_eq!(lab.result("tasks/pushNotificationConfig/delete", &delete), Value::Null);
    assert_eq!(lab.code("tasks/pushNotificationConfig/get", &named), -32001);
    let none = lab.result("tasks/pushNotification/get", &named);
    assert_eq!(none["pushNotificationConfig"], Value::Null);
    let set = json!({"id": task, "pushNotificationConfig": {"url": URL}});
    assert_eq!(lab.result("tasks/pushNotification/set", &set)["id"], *task);
    // In 0.1 a null removes the configuration that a get returns, and no other.
    set_v1(&mut lab, &task, "of 1.0");
    let clear = json!({"id": task, "pushNotificationConfig": null});
    for remaining in [json!(["of 1.0"]), json!([]), json!([])] {
        assert_eq!(lab.result("tasks/pushNotification/set", &clear), clear);
        let listed = lab.result("ListTaskPushNotificationConfigs", &json!({"taskId": task}));
        let ids = listed["configs"].as_array().unwrap().iter().map(|config| config["id"].clone());
        assert_eq!(ids.collect::<Value>(), remaining);
    }
}

#[test]
fn http_json_and_websocket_support_push_configurations() {
    let mut lab = lab();
    let task = long_task(&mut lab);
    let configs = format!("/tasks/{task}/pushNotificationConfigs");
    let version = [("A2A-Version", "1.0")];
    let made = lab.ask(&post(&configs, &version, &json!({"url": URL, "id": "r"}).to_string()));
    assert_eq!((made.status, &made.json()["id"]), (200, &json!("r")));
    let read = lab.ask(&get(&format!("{configs}/r?A2A-Version=1.0")));
    assert_eq!((read.status, &read.json()["taskId"]), (200, &json!(task)));
    let listed = lab.ask(&get(&format!("{configs}?pageSize=1")));
    assert_eq!(listed.json()["configs"].as_array().unwrap().len(), 1);
    // The proto of 0.3 has pages as well.
    set_v1(&mut lab, &task, "s");
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let page = lab.ask(&get(&format!("/v1{configs}?page_size=1&pageToken={token}"))).json();
        let [config] = page["configs"].as_array().unwrap().as_slice() else { panic!("{page}") };
        names.push(config["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned());
        match page["nextPageToken"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(names, ["r", "s"]);
    assert_eq!(lab.ask(&get(&format!("/v1{configs}?pageToken=x"))).status, 422);
    let socket = lab.socket("/", "");
    let named = json!({"taskId": task, "id": "r"});
    let mut call = |method: &str, params: &Value| lab.say(socket, &rpc(method, params)).remove(0);
    assert_eq!(call("GetTaskPushNotificationConfig", &named)["result"]["url"], URL);
    let config = json!({"taskId": task, "id": "w", "url": URL});
    assert_eq!(call("CreateTaskPushNotificationConfig", &config)["result"]["id"], "w");
    let deleted = json!({"taskId": task, "id": "s"});
    assert!(call("DeleteTaskPushNotificationConfig", &deleted)["error"].is_null());
    let listed = call("ListTaskPushNotificationConfigs", &json!({"taskId": task}));
    let ids = listed["result"]["configs"].as_array().unwrap().iter().map(|at| at["id"].clone());
    assert_eq!(ids.collect::<Vec<_>>(), ["r", "w"]);
    let delete = format!("DELETE {configs}/r HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(lab.ask(delete.as_bytes()).status, 200);
    assert_eq!(lab.ask(&get(&format!("{configs}/r"))).status, 404);
}

#[test]
fn push_configurations_are_scoped_to_the_task_tenant() {
    let mut lab = lab();
    let driver = WebhookDriver::of(&lab);
    let mut params = with_webhook(V1, "hi", json!({"url": URL, "id": "a"}));
    params["tenant"] = json!("acme");
    let made = lab.result(V1.send(), &params);
    let task = made["task"]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        driver.deliver(&lab).last().map(|post| state_of(&post.body).to_owned()).unwrap(),
        "TASK_STATE_COMPLETED"
    );
    let set = |tenant: Option<&str>| {
        let mut params = json!({"taskId": task, "id": "b", "url": URL});
        if let Some(tenant) = tenant {
            params["tenant"] = json!(tenant);
        }
        params
    };
    let method = "CreateTaskPushNotificationConfig";
    assert_eq!(lab.result(method, &set(Some("acme")))["id"], "b");
    for other in [None, Some("other")] {
        assert_eq!(lab.code(method, &set(other)), -32001, "{other:?}");
    }
    // By the path of the tenant, and of the agent.
    let configs = format!("/tasks/{task}/pushNotificationConfigs");
    let listed = lab.ask(&get(&format!("/acme{configs}"))).json();
    assert_eq!(listed["configs"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(lab.ask(&get(&format!("/other{configs}"))).status, 404);
    let deleted = lab.ask(&post(
        "/agents/echo",
        &[],
        &rpc(
            "DeleteTaskPushNotificationConfig",
            &json!({"taskId": task, "id": "b", "tenant": "acme"}),
        ),
    ));
    assert_eq!(deleted.status, 200);
    let listed = lab.ask(&get(&format!("/acme{configs}"))).json();
    assert_eq!(listed["configs"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn failing_receiver_gets_retries_in_order() {
    let mut lab = lab();
    let config = json!({"url": URL});
    lab.result(V1.send(), &with_webhook(V1, "stream:3", config));
    let driver = WebhookDriver::of(&lab);
    let first = driver.next(&lab).unwrap();
    assert!(driver.next(&lab).is_none(), "the next waits for the one before");
    driver.done(&lab, &first, failed("HTTP status 500"));
    assert!(driver.next(&lab).is_none());
    lab.pass(1_000);
    let again = driver.next(&lab).unwrap();
    assert_eq!(again.body, first.body);
    assert_eq!(again.field("A2A-Notification-Id"), first.field("A2A-Notification-Id"));
    driver.done(&lab, &again, PostOutcome::Delivered);
    assert_eq!(driver.deliver(&lab).len(), 3);
    // A receiver that answers 410 is removed.
    let mut lab = self::lab();
    lab.result(V1.send(), &with_webhook(V1, "stream:3", json!({"url": URL})));
    let driver = WebhookDriver::of(&lab);
    let first = driver.next(&lab).unwrap();
    driver.done(&lab, &first, PostOutcome::Gone);
    assert!(driver.next(&lab).is_none());
}

/// Passes the job of each turn to the test.
#[derive(Clone, Default)]
struct Keep(Arc<Mutex<Vec<Job>>>);

impl Agent for Keep {
    fn start(&self, turn: Turn<'_>) {
        self.0.lock().unwrap().extend(turn.detach().ok());
    }
}

/// A server with an agent that passes its jobs to the test.
fn keeping(setup: Setup) -> (Lab, Keep) {
    let keep = Keep::default();
    let agent = Arc::new(keep.clone()) as Arc<dyn Agent>;
    let agents = vec![(Profile::new("keep", "Keeps its jobs."), agent)];
    (Lab::new(Setup { agents, ..setup }), keep)
}

#[test]
fn webhook_past_the_replay_window_gets_task_then_events() {
    let mut setup = setup();
    setup.limits.event_ring_max = 8;
    let (mut lab, keep) = keeping(setup);
    let mut params = with_webhook(V1, "hi", json!({"url": URL}));
    params["configuration"]["returnImmediately"] = json!(true);
    lab.result(V1.send(), &params);
    let mut job = keep.0.lock().unwrap().pop().unwrap();
    let driver = WebhookDriver::of(&lab);
    assert_eq!(driver.deliver(&lab).len(), 1);
    for _ in 0..500 {
        job.status(TaskState::Working, None).unwrap();
    }
    let lagged = driver.deliver(&lab);
    assert_eq!((lagged.len(), state_of(&lagged[0].body)), (1, "TASK_STATE_WORKING"));
    assert!(lagged[0].body["task"].is_object());
    job.status(TaskState::Completed, None).unwrap();
    let posts = driver.deliver(&lab);
    assert_eq!((posts.len(), state_of(&posts[0].body)), (1, "TASK_STATE_COMPLETED"));
    assert!(posts[0].body["statusUpdate"].is_object());
}

#[test]
fn finished_task_waits_for_its_webhooks_unless_store_is_full() {
    let mut setup = setup();
    setup.limits.task_ttl_ms = 5_000;
    let mut lab = Lab::new(setup);
    let result = lab.result(V1.send(), &with_webhook(V1, "hi", json!({"url": URL})));
    let id = json!({"id": result["task"]["id"]});
    let driver = WebhookDriver::of(&lab);
    let first = driver.next(&lab).unwrap();
    lab.pass(60_000);
    lab.result(V1.get(), &id);
    driver.done(&lab, &first, PostOutcome::Delivered);
    assert!(driver.deliver(&lab).len() >= 2);
    lab.pass(20_000);
    assert_eq!(lab.code(V1.get(), &id), -32001);
    assert!(driver.next(&lab).is_none());

    let mut setup = self::setup();
    setup.limits.tasks_max = 2;
    let mut lab = Lab::new(setup);
    lab.result(V1.send(), &with_webhook(V1, "hi", json!({"url": URL})));
    let driver = WebhookDriver::of(&lab);
    for _ in 0..3 {
        lab.result(V1.send(), &V1.params(say("hi")));
        lab.pass(1);
    }
    assert!(driver.next(&lab).is_none(), "its task went like others");
}

#[test]
fn abandoned_webhook_is_evicted_with_its_expired_task() {
    let mut setup = setup();
    setup.limits.task_ttl_ms = 5_000;
    setup.limits.push_bytes_max = 2_400;
    let pace = Pace { give_up_ms: 0, ..Pace::default() };
    setup.push = Some(PushSettings { pace, ..PushSettings::default() });
    let mut lab = Lab::new(setup);
    let driver = WebhookDriver::of(&lab);
    // More than the limits admit at a time.
    for _ in 0..10 {
        let configured = with_webhook(V1, "hi", json!({"url": URL}));
        let id = json!({"id": lab.result(V1.send(), &configured)["task"]["id"]});
        let post = driver.next(&lab).unwrap();
        let why = "nobody is there".to_owned();
        driver.done(&lab, &post, PostOutcome::Failed { why, retry_after_ms: None });
        assert!(driver.next(&lab).is_none());
        lab.pass(20_000);
        assert_eq!(lab.code(V1.get(), &id), -32001);
        assert!(driver.next(&lab).is_none());
    }
}

#[test]
fn task_with_a_deleted_or_gone_webhook_expires_by_age() {
    for is_gone in [false, true] {
        let mut setup = setup();
        setup.limits.task_ttl_ms = 5_000;
        let mut lab = Lab::new(setup);
        let config = json!({"url": URL, "id": "w"});
        let result = lab.result(V1.send(), &with_webhook(V1, "stream:3", config));
        let id = result["task"]["id"].as_str().unwrap().to_owned();
        let driver = WebhookDriver::of(&lab);
        let first = driver.next(&lab).unwrap();
        if is_gone {
            driver.done(&lab, &first, PostOutcome::Gone);
        } else {
            let config = json!({"taskId": id, "id": "w"});
            lab.result("DeleteTaskPushNotificationConfig", &config);
            driver.done(&lab, &first, PostOutcome::Delivered);
        }
        for _ in 0..4 {
            lab.pass(5_000);
        }
        assert_eq!(lab.code(V1.get(), &json!({"id": id})), -32001, "{is_gone}");
    }
}

#[test]
fn webhook_is_discarded_if_the_message_creates_no_task() {
    let mut lab = lab();
    let configured = |text: &str| with_webhook(V1, text, json!({"url": URL}));
    let answer = lab.result(V1.send(), &configured("ping"));
    assert!(answer["message"].is_object());
    let driver = WebhookDriver::of(&lab);
    assert!(driver.next(&lab).is_none());
    // They do not count towards the limits: all of them are accepted.
    let mut setup = setup();
    setup.limits.push_bytes_max = 2_400;
    let mut lab = Lab::new(setup);
    for _ in 0..20 {
        assert!(lab.result(V1.send(), &configured("ping"))["message"].is_object());
    }
}

#[test]
fn refused_message_changes_no_webhook_of_its_task() {
    let mut lab = lab();
    let task = long_task(&mut lab);
    let driver = WebhookDriver::of(&lab);
    driver.deliver(&lab);
    let before = json!({"url": URL, "token": "before"});
    let set = json!({"taskId": task, "pushNotificationConfig": before});
    lab.result("tasks/pushNotificationConfig/set", &set);
    let list =
        |lab: &mut Lab| lab.result("tasks/pushNotificationConfig/list", &json!({"id": task}));
    let listed = list(&mut lab);
    // Without an id of its own it gets the id of the existing one.
    let mut params = with_webhook(V03, "more", json!({"url": "https://other.example/"}));
    params["message"]["taskId"] = json!(task);
    params["message"]["contextId"] = json!("of-another");
    assert_eq!(lab.call(V03.send(), &params)["error"]["code"], -32602);
    assert_eq!(list(&mut lab), listed);
    // An accepted message replaces the configuration.
    params["message"].as_object_mut().unwrap().remove("contextId");
    params["configuration"]["blocking"] = json!(false);
    lab.result(V03.send(), &params);
    assert_ne!(list(&mut lab), listed);
    lab.pass(20_000);
    let posts = driver.deliver(&lab);
    assert!(posts.iter().all(|post| post.request.url == "https://other.example/"));
    assert_eq!(state_of(&posts.last().unwrap().body), "completed");
}

#[test]
fn replacement_webhook_gets_the_undelivered_events() {
    let mut lab = lab();
    let mut params = with_webhook(V1, "stream:3", json!({"url": URL, "id": "mine"}));
    params["configuration"]["returnImmediately"] = json!(true);
    let task = lab.result(V1.send(), &params)["task"]["id"].as_str().unwrap().to_owned();
    let driver = WebhookDriver::of(&lab);
    let first = driver.next(&lab).unwrap();
    driver.done(&lab, &first, PostOutcome::Delivered);
    let second = driver.next(&lab).unwrap();
    driver.done(&lab, &second, failed("HTTP status 401"));
    let params = json!({"taskId": task, "id": "mine", "url": URL, "token": "new"});
    lab.result("CreateTaskPushNotificationConfig", &params);
    let posts = driver.deliver(&lab);
    assert_eq!(posts[0].body, second.body);
    assert_eq!(posts[0].field("A2A-Notification-Id"), second.field("A2A-Notification-Id"));
    assert!(posts.iter().all(|post| post.field("X-A2A-Notification-Token") == Some("new")));
    assert_eq!(state_of(&posts.last().unwrap().body), "TASK_STATE_COMPLETED");
    assert_eq!(posts.len(), 3);
}

#[test]
fn challenge_is_sent_at_once_and_events_after_its_answer() {
    let settings = PushSettings { challenge: PushChallenge::Always, ..PushSettings::default() };
    let mut lab = Lab::new(Setup { push: Some(settings), ..Setup::default() });
    let task = long_task(&mut lab);
    let driver = WebhookDriver::of(&lab);
    let next_request = |lab: &Lab| {
        let mut request = PostRequest::default();
        let next = driver.0.next(lab.now, Waker::noop(), &mut request);
        (next == NextRequest::Post).then_some(request)
    };
    let params = json!({"taskId": task, "id": "c", "url": URL, "token": "secret",
        "authentication": {"scheme": "Bearer", "credentials": "secret"}});
    lab.result("CreateTaskPushNotificationConfig", &params);
    let challenge = next_request(&lab).unwrap();
    assert_eq!(challenge.url, format!("{URL}?validationToken={}", challenge.expects));
    assert!(challenge.body.is_empty());
    assert!(challenge.fields.get().iter().all(|(_, value)| !value.contains("secret")));
    assert!(next_request(&lab).is_none());
    driver.0.done(&challenge, failed("wrong"), lab.now, 1 << 60);
    lab.pass(1_000);
    let again = next_request(&lab).unwrap();
    assert_eq!(again.expects, challenge.expects);
    driver.0.done(&again, PostOutcome::Delivered, lab.now, 0);
    lab.pass(20_000);
    let delivered = driver.deliver(&lab);
    assert_eq!(state_of(&delivered.last().unwrap().body), "TASK_STATE_COMPLETED");
    // With other credentials alone it is the same receiver.
    let params = json!({"taskId": task, "id": "c", "url": URL, "token": "other"});
    lab.result("CreateTaskPushNotificationConfig", &params);
    assert!(next_request(&lab).is_none());
    let params = json!({"taskId": task, "id": "c", "url": "https://hooks.example/other"});
    lab.result("CreateTaskPushNotificationConfig", &params);
    // The expected answer of the other URL is a new one.
    let other = next_request(&lab).unwrap().expects;
    assert!(!other.is_empty() && other != challenge.expects);
}

#[test]
fn task_and_event_posts_have_different_notification_ids() {
    let filter = PushFilter::default().coalesced(true);
    let push = Some(PushSettings { filter, ..PushSettings::default() });
    let mut lab = Lab::new(Setup { push, ..Setup::default() });
    let driver = WebhookDriver::of(&lab);
    let task = long_task(&mut lab);
    let set = |lab: &mut Lab, coalesce: Option<bool>| {
        let mut config = json!({"taskId": task, "id": "c", "url": URL});
        config["coalesce"] = json!(coalesce);
        lab.result("CreateTaskPushNotificationConfig", &config);
    };
    set(&mut lab, None);
    lab.pass(20_000);
    let mut last = [None, Some(false)].map(|coalesce| {
        set(&mut lab, coalesce);
        let mut last = None;
        while let Some(post) = driver.next(&lab) {
            let is_last = state_of(&post.body) == "TASK_STATE_COMPLETED";
            let outcome = if is_last { failed("lost") } else { PostOutcome::Delivered };
            driver.done(&lab, &post, outcome);
            last = Some(post);
        }
        lab.pass(2_000);
        last.unwrap()
    });
    let ids = last.each_ref().map(|post| post.field("A2A-Notification-Id").unwrap().to_owned());
    let events = last.each_ref().map(|post| post.field("A2A-Event-Id").unwrap().to_owned());
    assert!(last[0].body["task"].is_object() && last[1].body["statusUpdate"].is_object());
    assert!(ids[0] != ids[1] && events[0] == events[1]);
    // A repeated post is the same.
    let again = driver.next(&lab).unwrap();
    assert_eq!(again.field("A2A-Notification-Id"), Some(&*ids[1]));
    assert_eq!(again.body, last[1].body.take());
}

/// Signs with the length of the body.
struct Word;

impl PostSigner for Word {
    fn jwt(&self, post: &SignedPost<'_>) -> Option<String> {
        Some(format!("{}-bytes", post.body.len()))
    }

    fn signature(&self, _: &[u8]) -> Option<String> {
        None
    }

    fn jwks(&self) -> &[u8] {
        b"{\"keys\":[]}"
    }
}

#[test]
fn signed_body_equals_its_reserialized_json() {
    let mut setup = setup();
    setup.webhook_signer = Some(Arc::new(Word));
    let mut lab = Lab::new(setup);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{
        "message": {"messageId": "m", "role": "user", "kind": "message",
            "parts": [{"kind": "text", "text": "stream:1"}],
            "metadata": { "k\/": [ 1.50, "\u00e9 \ud83d\ude00" ] }},
        "configuration": {"pushNotificationConfig": {"url": "https://hooks.example/a2a"}}}}"#;
    let answer = lab.ask(&post("/", &[], body)).json();
    assert!(answer["result"].is_object(), "{answer}");
    let delivered = WebhookDriver::of(&lab).next(&lab).unwrap();
    let text = str::from_utf8(&delivered.request.body).unwrap();
    assert!(text.contains(r#""metadata":{"k/":[1.50,"é 😀"]}"#), "{text}");
    assert_eq!(delivered.field("Authorization"), Some(&*format!("Bearer {}-bytes", text.len())));
}

/// Defers each turn; the test ends it later.
#[derive(Default)]
struct Later(Mutex<Vec<Deferred>>);

impl Agent for Later {
    fn start(&self, turn: Turn<'_>) {
        self.0.lock().unwrap().extend(turn.defer());
    }
}

#[test]
fn webhook_of_a_deferred_turn_starts_with_its_task() {
    let later = Arc::new(Later::default());
    let agent = (Profile::new("later", "Answers later."), Arc::clone(&later) as Arc<dyn Agent>);
    let mut setup = Setup { agents: vec![agent], ..setup() };
    setup.limits.push_bytes_max = 2_400;
    let mut lab = Lab::new(setup);
    let driver = WebhookDriver::of(&lab);
    let configured = |text: &str| with_webhook(V1, text, json!({"url": URL}));
    // A turn that is refused or answered with a message leaves no counted configuration.
    for round in 0..20 {
        let peer = lab.open();
        lab.write(peer, &post("/", &[], &rpc(V1.send(), &configured("hi"))));
        let deferred = later.0.lock().unwrap().pop().unwrap();
        match round % 3 {
            0 => deferred.fail("no"),
            1 => deferred.reply(MessageBuf::agent(&PartsBuf::new().text("hi"))),
            _ => drop(deferred),
        }
        lab.settle();
        lab.reply(peer);
    }
    assert!(driver.next(&lab).is_none());
    let peer = lab.open();
    lab.write(peer, &post("/", &[], &rpc(V1.send(), &configured("hi"))));
    let deferred = later.0.lock().unwrap().pop().unwrap();
    let job = deferred.into_job().unwrap();
    job.reply(MessageBuf::agent(&PartsBuf::new().text("done"))).unwrap();
    lab.settle();
    lab.reply(peer);
    let posts = driver.deliver(&lab);
    assert_eq!(state_of(&posts[0].body), "TASK_STATE_SUBMITTED");
    assert_eq!(state_of(&posts.last().unwrap().body), "TASK_STATE_COMPLETED");
}

#[test]
fn push_configuration_with_bad_url_or_field_is_rejected() {
    let mut lab = lab();
    let task = long_task(&mut lab);
    for url in [
        "http://hooks.example/",
        "https://127.0.0.1/",
        "https://0x7f.1/",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest",
        "https://localhost/",
        "https://user@hooks.example/",
        "https://hooks.example:22/",
        "ftp://hooks.example/",
        "hooks.example",
        "https:///hooks.example",
        "https://hooks.example/\u{b}x",
    ] {
        let params = json!({"taskId": task, "url": url});
        let answer = lab.call("CreateTaskPushNotificationConfig", &params);
        assert_eq!(answer["error"]["code"], -32602, "{url}: {answer}");
        assert!(answer["error"].to_string().contains("url"), "{answer}");
        let inline = with_webhook(V1, "hi", json!({"url": url}));
        assert_eq!(lab.code(V1.send(), &inline), -32602, "{url}");
    }
    for (member, value) in [
        ("token", json!("a\r\nX: y")),
        ("token", json!("\u{7f}")),
        ("authentication", json!({"scheme": "Be arer", "credentials": "x"})),
        ("authentication", json!({"scheme": "Bearer", "credentials": "x\ny"})),
    ] {
        let mut params = json!({"taskId": task, "url": URL});
        params[member] = value;
        assert_eq!(lab.code("CreateTaskPushNotificationConfig", &params), -32602, "{params}");
    }
    assert!(WebhookDriver::of(&lab).next(&lab).is_none());
}

/// Each error names the member in the caller's own format.
#[test]
fn configuration_error_names_the_member_in_the_caller_format() {
    let mut lab = lab();
    let task = long_task(&mut lab);
    let bad = json!({"url": URL, "authentication": {"schemes": [5]}});
    let bare = json!({"url": URL, "authentication": {"credentials": "c"}});
    let url = json!({"url": "nothing"});
    const V03_SET: &str = "tasks/pushNotificationConfig/set";
    const V01_SET: &str = "tasks/pushNotification/set";
    const V1_SET: &str = "CreateTaskPushNotificationConfig";
    let v1 = |config: &Value| {
        let mut params = config.clone();
        params["taskId"] = json!(task);
        params
    };
    let old = |config: &Value| json!({"taskId": task, "pushNotificationConfig": config});
    let v01 = |config: &Value| json!({"id": task, "pushNotificationConfig": config});
    let inline = |generation, config: &Value| with_webhook(generation, "hi", config.clone());
    for (method, params, member) in [
        (V1_SET, v1(&bare), "authentication.scheme"),
        (V1_SET, v1(&url), "url"),
        (V03_SET, old(&bad), "pushNotificationConfig.authentication.schemes"),
        (V03_SET, old(&bare), "pushNotificationConfig.authentication.schemes"),
        (V03_SET, json!({"taskId": task}), "pushNotificationConfig.url"),
        (V03_SET, old(&Value::Null), "pushNotificationConfig.url"),
        (V03_SET, old(&json!("x")), "pushNotificationConfig"),
        (V01_SET, v01(&bare), "pushNotificationConfig.authentication.schemes"),
        (
            V1.send(),
            inline(V1, &bare),
            "configuration.taskPushNotificationConfig.authentication.scheme",
        ),
        (V1.send(), inline(V1, &url), "configuration.taskPushNotificationConfig.url"),
        (
            V03.send(),
            inline(V03, &bad),
            "configuration.pushNotificationConfig.authentication.schemes",
        ),
        (V03.send(), inline(V03, &json!("x")), "configuration.pushNotificationConfig"),
        (V01.send(), inline(V01, &url), "pushNotification.url"),
        (V01.send(), inline(V01, &bare), "pushNotification.authentication.schemes"),
    ] {
        let answer = lab.call(method, &params);
        assert_eq!(answer["error"]["code"], -32602, "{method} {params}: {answer}");
        let error = format!("{}{}", answer["error"]["message"], answer["error"]["data"]);
        assert!(
            error.contains(&format!("{member}:")) || error.contains(&format!("{member}\"")),
            "{member}: {answer}"
        );
    }
    // A single string is a scheme as well.
    let alone = json!({"url": URL, "authentication": {"schemes": "Bearer", "credentials": "c"}});
    let made = lab.result(V03_SET, &old(&alone));
    assert_eq!(made["pushNotificationConfig"]["authentication"]["schemes"], json!(["Bearer"]));
}

#[test]
fn without_webhooks_push_methods_and_card_capability_are_off() {
    let mut off = Lab::echo();
    let mut on = lab();
    for (lab, is_on) in [(&mut off, false), (&mut on, true)] {
        let card = lab.ask(&get("/.well-known/agent-card.json")).json();
        assert_eq!(card["capabilities"]["pushNotifications"], is_on);
    }
    assert!(off.engine.outbox().is_none());
    for method in [
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/set",
        "tasks/pushNotificationConfig/get",
        "tasks/pushNotificationConfig/list",
        "tasks/pushNotificationConfig/delete",
        "tasks/pushNotification/set",
        "tasks/pushNotification/get",
    ] {
        assert_eq!(off.code(method, &json!({})), -32003, "{method}");
        assert_eq!(on.code(method, &json!({})), -32602, "{method}");
    }
    for generation in Gen::ALL {
        let params = with_webhook(generation, "hi", json!({"url": URL}));
        assert_eq!(off.code(generation.send(), &params), -32003, "{generation:?}");
    }
}

#[test]
fn outbox_rejects_private_addresses_of_unlisted_hosts() {
    let allow = vec!["localhost".parse().unwrap()];
    let targets = PushTargets { allow, ..PushTargets::default() };
    let push = Some(PushSettings { targets, ..PushSettings::default() });
    let lab = Lab::new(Setup { push, ..Setup::default() });
    let outbox = lab.engine.outbox().unwrap();
    let check = |host: &str, address: &str| {
        outbox.check_address(host, address.parse().unwrap(), &|_| false).is_ok()
    };
    assert!(check("hooks.example", "93.184.216.34"));
    assert!(!check("hooks.example", "10.0.0.1") && !check("hooks.example", "fd00::1"));
    assert!(check("localhost", "127.0.0.1") && check("localhost", "::1"));
}

const EVO: &str = "/api/v1/a2a/echo";

/// A server with these keys.
fn lab_with_keys(limits: Limits) -> Lab {
    Lab::new(setup_with_keys(limits))
}

fn setup_with_keys(limits: Limits) -> Setup {
    let rule = |key: &str| KeyRule {
        digest: SecretDigest::of(key.as_bytes()),
        caller: KnownCaller { name: key.to_owned(), ..KnownCaller::default() },
        expires_unix_ms: None,
    };
    let api_keys = vec![rule("alice"), rule("bob")];
    let callers = Callers::new(AuthRules { api_keys, ..AuthRules::default() }).unwrap();
    let authenticator = Some(Arc::new(callers) as Arc<dyn Authenticator>);
    Setup { authenticator, limits, ..setup() }
}

/// Calls with a key.
fn call_as(lab: &mut Lab, path: &str, key: &str, method: &str, params: &Value) -> Value {
    lab.ask(&post(path, &[("x-api-key", key)], &rpc(method, params))).json()
}

const EVO_SET: &str = "tasks/pushNotificationConfig/set";
const EVO_GET: &str = "tasks/pushNotificationConfig/get";

#[test]
fn evo_ai_webhook_gets_only_later_tasks_of_its_scope() {
    let mut lab = lab_with_keys(Limits::default());
    let driver = WebhookDriver::of(&lab);
    let send = |id: &str| V1.params(OutgoingMessage { id, ..say("hi") });
    call_as(&mut lab, "/", "alice", V1.send(), &send("m-0"));
    let none = call_as(&mut lab, EVO, "alice", EVO_GET, &json!({}));
    assert_eq!(none["result"], json!({"config": null}));
    let config =
        json!({"config": {"url": URL, "headers": {"Authorization": "Bearer x", "X-A": "1"}}});
    let set = call_as(&mut lab, EVO, "alice", EVO_SET, &config);
    assert_eq!(set["result"]["config"]["url"], URL, "{set}");
    assert!(!set.to_string().contains("Bearer x"), "{set}");
    let read = call_as(&mut lab, EVO, "alice", EVO_GET, &json!({}));
    assert_eq!(read["result"], set["result"]);
    assert_eq!(
        call_as(&mut lab, EVO, "bob", EVO_GET, &json!({}))["result"],
        json!({"config": null})
    );
    call_as(&mut lab, "/", "bob", V1.send(), &send("m-1"));
    assert!(driver.next(&lab).is_none(), "not his, and not those before");
    let made = call_as(&mut lab, "/", "alice", V1.send(), &send("m-2"));
    let posts = driver.deliver(&lab);
    // Pending events are merged into one post.
    assert_eq!(posts.len(), 1);
    let (post, body) = (&posts[0], &posts[0].body);
    assert_eq!(body["taskId"], made["result"]["task"]["id"]);
    assert_eq!((&body["status"], body.as_object().unwrap().len()), (&json!("completed"), 3));
    assert!(body["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(post.field("Authorization"), Some("Bearer x"));
    assert_eq!((post.field("X-A"), post.field("A2A-Version")), (Some("1"), None));
    // For one context; it replaces the previous one.
    let config = json!({"contextId": "c-1", "config": {"url": URL}});
    call_as(&mut lab, EVO, "alice", EVO_SET, &config);
    call_as(&mut lab, "/", "alice", V1.send(), &send("m-3"));
    assert!(driver.next(&lab).is_none());
    let mut in_context = send("m-9");
    in_context["message"]["contextId"] = json!("c-1");
    call_as(&mut lab, "/", "alice", V1.send(), &in_context);
    let posts = driver.deliver(&lab);
    assert_eq!((posts.len(), posts[0].field("Authorization")), (1, None));
    // After a 410 the receiver gets no other task either.
    in_context["message"]["messageId"] = json!("m-10");
    call_as(&mut lab, "/", "alice", V1.send(), &in_context);
    let post = driver.next(&lab).unwrap();
    driver.done(&lab, &post, PostOutcome::Gone);
    let none = call_as(&mut lab, EVO, "alice", EVO_GET, &json!({}));
    assert_eq!(none["result"], json!({"config": null}));
}

#[test]
fn null_config_removes_the_evo_ai_webhook_of_its_scope() {
    let mut lab = lab_with_keys(Limits::default());
    let driver = WebhookDriver::of(&lab);
    let config = json!({"config": {"url": URL}});
    for none in [json!({"config": null}), json!({"pushNotificationConfig": null})] {
        for key in ["alice", "bob"] {
            call_as(&mut lab, EVO, key, EVO_SET, &config);
        }
        for _ in 0..2 {
            let unset = call_as(&mut lab, EVO, "alice", EVO_SET, &none);
            assert_eq!(unset["result"], json!({"config": null}), "{unset}");
        }
        let shown = call_as(&mut lab, EVO, "alice", EVO_GET, &json!({}));
        assert_eq!(shown["result"], json!({"config": null}));
        let of_bob = call_as(&mut lab, EVO, "bob", EVO_GET, &json!({}));
        assert_eq!(of_bob["result"]["config"]["url"], URL, "another scope keeps its own");
        call_as(&mut lab, "/", "alice", V1.send(), &V1.params(say("hi")));
        assert!(driver.next(&lab).is_none());
    }
}

#[test]
fn gone_receiver_removes_only_the_scope_of_its_task() {
    let mut setup = setup_with_keys(Limits::default());
    let agent = |name| (Profile::new(name, "An echo."), Arc::new(Echo) as Arc<dyn Agent>);
    setup.agents = vec![agent("a"), agent("b")];
    let mut lab = Lab::new(setup);
    let driver = WebhookDriver::of(&lab);
    let scopes = [("alice", "/api/v1/a2a/a"), ("alice", "/api/v1/a2a/b"), ("bob", "/api/v1/a2a/a")];
    let urls = |lab: &mut Lab| {
        scopes.map(|(key, path)| {
            let read = call_as(lab, path, key, EVO_GET, &json!({}));
            read["result"]["config"]["url"].as_str().map(str::to_owned)
        })
    };
    let config = json!({"config": {"url": URL}});
    for (key, path) in scopes {
        call_as(&mut lab, path, key, EVO_SET, &config);
    }
    let respond_gone = |lab: &mut Lab, params: &Value| {
        let made = call_as(lab, "/", "bob", V1.send(), params);
        assert!(made["error"].is_null(), "{made}");
        let post = driver.next(lab).unwrap();
        driver.done(lab, &post, PostOutcome::Gone);
    };
    let send = |id: &str| V1.params(OutgoingMessage { id, ..say("hi") });
    respond_gone(&mut lab, &send("m-1"));
    assert_eq!(urls(&mut lab), [Some(URL.to_owned()), Some(URL.to_owned()), None]);
    // A configuration with the same content does not end it either.
    let mut inline = send("m-2");
    inline["configuration"]["taskPushNotificationConfig"] = json!({"url": URL, "id": "evo_ai"});
    respond_gone(&mut lab, &inline);
    assert_eq!(urls(&mut lab), [Some(URL.to_owned()), Some(URL.to_owned()), None]);
    // A configuration that was set afterwards is a new one.
    let (key, path) = scopes[0];
    call_as(&mut lab, "/", key, V1.send(), &send("m-3"));
    let post = driver.next(&lab).unwrap();
    call_as(&mut lab, path, key, EVO_SET, &config);
    driver.done(&lab, &post, PostOutcome::Gone);
    assert_eq!(urls(&mut lab), [Some(URL.to_owned()), Some(URL.to_owned()), None]);
}

#[test]
fn evo_ai_configuration_supports_all_standard_members() {
    let mut lab = lab_with_keys(Limits::default());
    let driver = WebhookDriver::of(&lab);
    let set = |lab: &mut Lab, config: Value| {
        call_as(lab, EVO, "alice", EVO_SET, &json!({"config": config}))
    };
    let config = json!({"url": URL, "token": "tell", "events": ["final"],
        "authentication": {"schemes": ["Bearer"], "credentials": "secret"},
        "headers": {"User-Agent": "mine", "X-A": "1"}});
    let made = set(&mut lab, config.clone());
    let shown = &made["result"]["config"];
    assert_eq!((&shown["token"], &shown["events"]), (&json!("tell"), &json!(["final"])), "{made}");
    assert_eq!(shown["authentication"], json!({"schemes": ["Bearer"]}));
    let mut params = V1.params(say("hold:1000:4"));
    params["configuration"]["returnImmediately"] = json!(true);
    call_as(&mut lab, "/", "alice", V1.send(), &params);
    assert!(driver.next(&lab).is_none(), "it has not ended");
    lab.pass(10_000);
    let posts = driver.deliver(&lab);
    let [post] = posts.as_slice() else { panic!("{}", posts.len()) };
    assert_eq!(post.body["status"], "completed");
    assert_eq!(post.field("X-A2A-Notification-Token"), Some("tell"));
    assert_eq!(post.field("Authorization"), Some("Bearer secret"));
    let agents = post.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("user-agent"));
    assert_eq!(agents.map(|(_, value)| &**value).collect::<Vec<_>>(), ["mine"]);
    // Invalid members are refused here as well, and no field may occur twice.
    for (member, wrong) in [
        ("events", json!(["nonsense"])),
        // It posts statuses only.
        ("events", json!(["artifacts"])),
        ("token", json!("a\nb")),
        ("authentication", json!({"credentials": "secret"})),
        ("headers", json!({"X-A": 1})),
        ("headers", json!({"X-A": "1", "x_a": "2"})),
        ("headers", json!({"authorization": "Bearer x"})),
    ] {
        let mut config = config.clone();
        config[member] = wrong;
        assert_eq!(set(&mut lab, config)["error"]["code"], -32602, "{member}");
    }
    // It does not name a task.
    let of_task = json!({"taskId": "t", "pushNotificationConfig": config});
    let answer = call_as(&mut lab, EVO, "alice", EVO_SET, &of_task);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    // With a message it is as in 0.3, with header fields.
    set(&mut lab, Value::Null);
    let mut params = json!({"message": {"role": "user", "messageId": "m-9",
        "parts": [{"type": "text", "text": "hi"}]}});
    params["configuration"]["pushNotificationConfig"] =
        json!({"url": URL, "headers": {"X-A": "2"}});
    let sent = call_as(&mut lab, EVO, "alice", "message/send", &params);
    let posts = driver.deliver(&lab);
    assert_eq!(posts.last().unwrap().body["id"], sent["result"]["id"], "{sent}");
    assert_eq!(posts.last().unwrap().field("X-A"), Some("2"));
}

#[test]
fn evo_ai_header_fields_are_checked_and_need_authentication() {
    let mut lab = lab_with_keys(Limits::default());
    let set = |lab: &mut Lab, headers: Value| {
        let params = json!({"config": {"url": URL, "headers": headers}});
        let answer = call_as(lab, EVO, "alice", EVO_SET, &params);
        answer["error"]["code"].as_i64()
    };
    for name in [
        "Host",
        "content-length",
        "Content-Type",
        "Transfer-Encoding",
        "connection",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "Proxy-Authorization",
        "Forwarded",
        "X-Forwarded-For",
        "a b",
        "",
        "a:b",
        "a\r\nb",
    ] {
        assert_eq!(set(&mut lab, json!({name: "x"})), Some(-32602), "{name}");
    }
    assert_eq!(set(&mut lab, json!({"X": "a\r\nHost: b"})), Some(-32602));
    let many = |count: usize, bytes: usize| {
        let fields = (0..count).map(|at| (format!("X-{at:02}"), json!("y".repeat(bytes))));
        Value::Object(fields.collect())
    };
    assert_eq!(set(&mut lab, many(16, 1)), None);
    assert_eq!(set(&mut lab, many(17, 1)), Some(-32602));
    assert_eq!(set(&mut lab, many(4, 1_020)), None);
    assert_eq!(set(&mut lab, many(4, 1_021)), Some(-32602));
    // Without authentication no caller can set fields.
    let mut open = Lab::new(setup());
    let params = json!({"config": {"url": URL}});
    let answer = open.ask(&post(EVO, &[], &rpc(EVO_SET, &params))).json();
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
}

/// Rules with these keys: text, name, and expiry.
fn key_rules(keys: &[(&str, &str, Option<u64>)]) -> AuthRules {
    let rule = |(key, name, expires_unix_ms): &(&str, &str, Option<u64>)| KeyRule {
        digest: SecretDigest::of(key.as_bytes()),
        caller: KnownCaller { name: (*name).to_owned(), ..KnownCaller::default() },
        expires_unix_ms: *expires_unix_ms,
    };
    AuthRules { api_keys: keys.iter().map(rule).collect(), ..AuthRules::default() }
}

#[test]
fn webhooks_stop_when_the_last_key_of_their_owner_is_gone() {
    let (first, second, bob) = (("k1", "alice", None), ("k2", "alice", None), ("k3", "bob", None));
    let callers = Arc::new(Callers::new(key_rules(&[first, second, bob])).unwrap());
    let authenticator = Some(Arc::clone(&callers) as Arc<dyn Authenticator>);
    let mut lab = Lab::new(Setup { authenticator, ..setup() });
    let driver = WebhookDriver::of(&lab);
    let url = |key: &str| format!("https://{key}.example/");
    let in_s = [10, 20, 30, 40];
    for key in ["k1", "k3"] {
        call_as(&mut lab, EVO, key, EVO_SET, &json!({"config": {"url": url(key)}}));
        for seconds in in_s {
            let text = format!("hold:{seconds}000:4");
            let config = json!({"url": url(key), "id": "mine"});
            let mut params = with_webhook(V1, &text, config);
            params["message"]["messageId"] = json!(text);
            params["configuration"]["returnImmediately"] = json!(true);
            let sent = call_as(&mut lab, "/", key, V1.send(), &params);
            assert!(sent["result"]["task"].is_object(), "{sent}");
        }
    }
    driver.deliver(&lab);
    // Whether each receiver gets a post in the next ten seconds.
    let posted = |lab: &mut Lab| {
        lab.pass(10_000);
        let posts = driver.deliver(lab);
        ["k1", "k3"].map(|key| posts.iter().any(|post| post.request.url == url(key)))
    };
    // One of her two keys is withdrawn: nothing stops.
    callers.replace(key_rules(&[second, bob])).unwrap();
    assert_eq!(posted(&mut lab), [true, true]);
    let of_scope = |lab: &mut Lab, key: &str| call_as(lab, EVO, key, EVO_GET, &json!({}));
    assert_eq!(of_scope(&mut lab, "k2")["result"]["config"]["url"], url("k1"));
    // Her last key is withdrawn: her webhooks stop for good, and that of her scope.
    callers.replace(key_rules(&[bob])).unwrap();
    assert_eq!(posted(&mut lab), [false, true]);
    callers.replace(key_rules(&[bob, first])).unwrap();
    assert_eq!(posted(&mut lab), [false, true]);
    assert_eq!(of_scope(&mut lab, "k1")["result"], json!({"config": null}));
    assert_eq!(of_scope(&mut lab, "k3")["result"]["config"]["url"], url("k3"));
    // An expired key does not keep webhooks alive.
    callers.replace(key_rules(&[("k3", "bob", Some(lab.now.unix_ms + 5_000))])).unwrap();
    assert_eq!(posted(&mut lab), [false, false]);
}

#[test]
fn push_configurations_of_other_owners_are_inaccessible() {
    let mut lab = lab_with_keys(Limits::default());
    let mut params = V1.params(say("hold:10000:4"));
    params["configuration"]["returnImmediately"] = json!(true);
    let made = call_as(&mut lab, "/", "alice", V1.send(), &params);
    let task = &made["result"]["task"]["id"];
    let params = json!({"taskId": task, "id": "a", "url": URL});
    let method = |name: &str| format!("{name}TaskPushNotificationConfig");
    let set = call_as(&mut lab, "/", "alice", &method("Create"), &params);
    assert_eq!(set["result"]["id"], "a", "{set}");
    for name in ["Create", "Get", "Delete"] {
        let answer = call_as(&mut lab, "/", "bob", &method(name), &params);
        assert_eq!(answer["error"]["code"], -32001, "{name}: {answer}");
    }
    let list = call_as(&mut lab, "/", "bob", "ListTaskPushNotificationConfigs", &params);
    assert_eq!(list["error"]["code"], -32001, "{list}");
}

#[test]
fn anonymous_webhooks_require_the_anonymous_setting() {
    let mut profile = echo().0;
    profile.anonymous = true;
    for anonymous in [false, true] {
        let push = Some(PushSettings { anonymous, ..PushSettings::default() });
        let callers = Callers::new(AuthRules::default()).unwrap();
        let authenticator = Some(Arc::new(callers) as Arc<dyn Authenticator>);
        let agents = vec![(profile.clone(), echo().1)];
        let mut lab = Lab::new(Setup { authenticator, agents, push, ..Setup::default() });
        let task = long_task(&mut lab);
        let made = set_v1(&mut lab, &task, "a");
        let inline = lab.call(V1.send(), &with_webhook(V1, "hi", json!({"url": URL})));
        assert_eq!(made.get("result").is_some(), anonymous, "{made}");
        assert_eq!(inline.get("result").is_some(), anonymous, "{inline}");
    }
}

#[test]
fn webhook_filter_defaults_to_the_operator_then_to_all() {
    let kinds = |lab: &mut Lab, config: Value, text: &str| {
        lab.result(V1.send(), &with_webhook(V1, text, config));
        let posts = WebhookDriver::of(lab).deliver(lab);
        let kind = |post: &Received| match state_of(&post.body) {
            "" => "artifact".to_owned(),
            state => state.trim_start_matches("TASK_STATE_").to_lowercase(),
        };
        posts.iter().map(kind).collect::<Vec<_>>().join(" ")
    };
    let all = "submitted working artifact artifact completed";
    for (events, got) in [
        (json!(null), all),
        (json!([]), all),
        (json!(["status"]), "submitted working completed"),
        (json!(["artifacts"]), "artifact artifact"),
        (json!(["final"]), "completed"),
        (json!(["final", "artifacts"]), "artifact artifact completed"),
    ] {
        let config = json!({"url": URL, "events": events});
        assert_eq!(kinds(&mut lab(), config, "stream:4"), got, "{events}");
    }
    // The operator's filter applies to configurations without their own.
    let filter = PushFilter::FINAL;
    let push = Some(PushSettings { filter, ..PushSettings::default() });
    let mut lab = Lab::new(Setup { push, ..Setup::default() });
    assert_eq!(kinds(&mut lab, json!({"url": URL}), "stream:4"), "completed");
    let config = json!({"url": URL, "events": ["status"]});
    assert_eq!(kinds(&mut lab, config, "stream:4"), "submitted working completed");
    // Pending events may be merged into one post with the current task.
    let config = json!({"url": URL, "coalesce": true, "events": []});
    assert_eq!(kinds(&mut lab, config, "stream:40"), "submitted completed");
    // A configuration with one of the two members takes the other from the operator.
    let config = json!({"url": URL, "coalesce": false});
    assert_eq!(kinds(&mut lab, config, "stream:4"), "completed");
    let filter = PushFilter::default().coalesced(true);
    let push = Some(PushSettings { filter, ..PushSettings::default() });
    let mut lab = Lab::new(Setup { push, ..Setup::default() });
    let config = json!({"url": URL, "events": ["artifacts", "final"]});
    assert_eq!(kinds(&mut lab, config, "stream:40"), "artifact completed");
    assert_eq!(kinds(&mut lab, json!({"url": URL}), "stream:40"), "submitted completed");
    let config = json!({"url": URL, "coalesce": false});
    assert_eq!(kinds(&mut lab, config, "stream:4"), all);
    let config = json!({"url": URL, "coalesce": true, "events": ["artifacts"], "id": "c"});
    let made = with_webhook(V1, "hold:9:4", config);
    let task = lab.result(V1.send(), &{
        let mut made = made;
        made["configuration"]["returnImmediately"] = json!(true);
        made
    });
    let id = json!({"taskId": task["task"]["id"], "id": "c"});
    let read = lab.result("GetTaskPushNotificationConfig", &id);
    assert_eq!((&read["events"], &read["coalesce"]), (&json!(["artifacts"]), &json!(true)));
    for (member, value) in [
        ("events", json!("status")),
        ("events", json!(["all"])),
        ("events", json!([1])),
        ("coalesce", json!(1)),
    ] {
        let mut config = json!({"url": URL});
        config[member] = value;
        assert_eq!(lab.code(V1.send(), &with_webhook(V1, "hi", config)), -32602, "{member}");
    }
    // A member that was not set is not returned.
    for (member, value, other) in
        [("coalesce", json!(false), "events"), ("events", json!([]), "coalesce")]
    {
        let mut config = json!({"url": URL, "id": member, "taskId": task["task"]["id"]});
        config[member] = value.clone();
        let made = lab.result("CreateTaskPushNotificationConfig", &config);
        assert_eq!((&made[member], made.get(other)), (&value, None), "{made}");
    }
    // The card lists the extension.
    let card = lab.ask(&get("/.well-known/agent-card.json"));
    assert!(card.text().contains("urn:peregrine:push-events:1"));
}

#[test]
fn before_1_0_the_task_is_posted_on_each_selected_event() {
    for (events, got) in [
        (json!(null), "submitted working artifact completed"),
        (json!([]), "submitted working artifact completed"),
        (json!(["status"]), "submitted working completed"),
        (json!(["artifacts"]), "artifact"),
        (json!(["final"]), "completed"),
        (json!(["final", "artifacts"]), "artifact completed"),
    ] {
        let (mut lab, keep) = keeping(setup());
        let driver = WebhookDriver::of(&lab);
        let mut params = with_webhook(V03, "hi", json!({"url": URL, "events": events}));
        params["configuration"]["blocking"] = json!(false);
        lab.result(V03.send(), &params);
        let mut job = keep.0.lock().unwrap().pop().unwrap();
        let mut posted = Vec::new();
        for step in ["submitted", "working", "artifact", "completed"] {
            match step {
                "working" => job.status(TaskState::Working, None).unwrap(),
                "artifact" => {
                    job.artifact(&ArtifactBuf::new("a", &PartsBuf::new().text("x"))).unwrap()
                }
                "completed" => job.status(TaskState::Completed, None).unwrap(),
                _ => {}
            }
            posted.extend(driver.deliver(&lab).iter().map(|_| step));
        }
        assert_eq!(posted.join(" "), got, "{events}");
    }
    // A later configuration gets no earlier events.
    let mut lab = lab();
    let task = long_task(&mut lab);
    let config = json!({"url": URL, "events": ["final"]});
    let set = json!({"taskId": task, "pushNotificationConfig": config});
    lab.result(EVO_SET, &set);
    let driver = WebhookDriver::of(&lab);
    assert!(driver.next(&lab).is_none());
    lab.pass(10_000);
    assert_eq!(driver.deliver(&lab).len(), 1);
}

/// The named limits, as a caller beyond each sees them.
#[test]
fn push_configs_owner_max() {
    let mut lab = lab_with_keys(Limits { push_configs_owner_max: 1, ..Limits::default() });
    let configured = |id: &str| {
        let mut params = with_webhook(V1, "hi", json!({"url": URL}));
        params["message"]["messageId"] = json!(id);
        params
    };
    for key in ["alice", "bob"] {
        let first = call_as(&mut lab, "/", key, V1.send(), &configured("1"));
        assert!(first["result"].is_object(), "{first}");
        let second = call_as(&mut lab, "/", key, V1.send(), &configured("2"));
        assert!(second["error"].to_string().contains("push_configs_owner_max"), "{second}");
    }
}

#[test]
fn push_configs_host_max() {
    let mut setup = setup();
    setup.limits.push_configs_host_max = 1;
    let mut lab = Lab::new(setup);
    let task = long_task(&mut lab);
    let set = |lab: &mut Lab, id: &str, url: &str| {
        let params = json!({"taskId": task, "id": id, "url": url});
        lab.call("CreateTaskPushNotificationConfig", &params)
    };
    assert!(set(&mut lab, "a", "https://one.example/")["result"].is_object());
    assert!(set(&mut lab, "b", "https://two.example/")["result"].is_object());
    let beyond = set(&mut lab, "c", "https://ONE.example:443/other");
    assert!(beyond["error"].to_string().contains("push_configs_host_max"), "{beyond}");
    // A replacement is accepted.
    assert!(set(&mut lab, "a", "https://one.example/other")["result"].is_object());
}

#[test]
fn push_scopes_max() {
    let mut lab = lab_with_keys(Limits { push_scopes_max: 1, ..Limits::default() });
    let config = json!({"config": {"url": URL}});
    for _ in 0..2 {
        let set = call_as(&mut lab, EVO, "alice", EVO_SET, &config);
        assert!(set["result"].is_object(), "{set}");
    }
    let beyond = call_as(&mut lab, EVO, "bob", EVO_SET, &config);
    assert!(beyond["error"].to_string().contains("push_scopes_max"), "{beyond}");
    // A removed scope frees its slot.
    call_as(&mut lab, EVO, "alice", EVO_SET, &json!({"config": null}));
    let set = call_as(&mut lab, EVO, "bob", EVO_SET, &config);
    assert!(set["result"].is_object(), "{set}");
}

#[test]
fn full_scopes_evict_from_the_owner_above_its_share() {
    let limits = Limits { push_scopes_max: 4, ..Limits::default() };
    let mut setup = setup_with_keys(limits);
    let agent = |name| (Profile::new(name, "An echo."), Arc::new(Echo) as Arc<dyn Agent>);
    setup.agents = ["a", "b", "c", "d", "e"].map(agent).into();
    let mut lab = Lab::new(setup);
    let mut call = |agent: &str, key: &str, method: &str, params: &Value| {
        let (path, body) = (format!("/api/v1/a2a/{agent}"), rpc(method, params));
        lab.ask(&post(&path, &[("x-api-key", key)], &body))
    };
    let config = json!({"config": {"url": URL}});
    for agent in ["a", "b", "c", "d"] {
        assert_eq!(call(agent, "alice", EVO_SET, &config).status, 200);
    }
    // Another owner gets slots up to its share, from the oldest ones; the largest owner gets none.
    for agent in ["a", "b"] {
        assert_eq!(call(agent, "bob", EVO_SET, &config).status, 200, "{agent}");
    }
    assert_eq!(call("c", "bob", EVO_SET, &config).status, 429);
    assert_eq!(call("e", "alice", EVO_SET, &config).status, 429);
    for (agent, is_there) in [("a", false), ("b", false), ("c", true), ("d", true)] {
        let shown = call(agent, "alice", "tasks/pushNotificationConfig/get", &json!({}));
        assert_eq!(shown.text().contains(URL), is_there, "{agent}: {}", shown.text());
    }
}

#[test]
fn push_scopes_owner_max() {
    let mut setup = setup_with_keys(Limits { push_scopes_owner_max: 1, ..Limits::default() });
    let agent = |name| (Profile::new(name, "An echo."), Arc::new(Echo) as Arc<dyn Agent>);
    setup.agents = vec![agent("a"), agent("b")];
    let mut lab = Lab::new(setup);
    let config = json!({"config": {"url": URL}});
    let mut set = |agent: &str, key: &str, config: &Value| {
        let (path, body) = (format!("/api/v1/a2a/{agent}"), rpc(EVO_SET, config));
        let reply = lab.ask(&post(&path, &[("x-api-key", key)], &body));
        (reply.status, reply.text().to_owned())
    };
    for key in ["alice", "alice", "bob"] {
        assert_eq!(set("a", key, &config).0, 200);
    }
    // The owner's share is full, whichever the agent.
    let (status, beyond) = set("b", "alice", &config);
    assert!(status == 429 && beyond.contains("push_scopes_owner_max"), "{status} {beyond}");
    set("a", "alice", &json!({"config": null}));
    assert_eq!(set("b", "alice", &config).0, 200);
}

#[test]
fn push_posts_bytes_max() {
    let mut setup = setup();
    setup.limits.push_posts_bytes_max = 12_000;
    let mut lab = Lab::new(setup);
    for _ in 0..20 {
        lab.result(V1.send(), &with_webhook(V1, "hi", json!({"url": URL})));
    }
    let driver = WebhookDriver::of(&lab);
    let mut under_way: Vec<Received> = std::iter::from_fn(|| driver.next(&lab)).collect();
    // A host may use an eighth.
    assert!((2..6).contains(&under_way.len()), "{}", under_way.len());
    // Each finished delivery admits others, until all are delivered.
    let mut delivered = 0;
    while let Some(post) = under_way.pop() {
        driver.done(&lab, &post, PostOutcome::Delivered);
        delivered += 1;
        under_way.extend(driver.next(&lab));
    }
    assert_eq!(delivered, 20 * 3);
}

#[test]
fn waiting_posts_resume_after_their_predecessors_are_deleted() {
    let mut setup = setup();
    setup.limits.push_posts_bytes_max = 2;
    let mut lab = Lab::new(setup);
    let config = json!({"url": URL, "id": "a"});
    let tasks: Vec<Value> = (0..20)
        .map(|_| {
            let result = lab.result(V1.send(), &with_webhook(V1, "hi", config.clone()));
            result["task"]["id"].clone()
        })
        .collect();
    let driver = WebhookDriver::of(&lab);
    let only = driver.next(&lab).unwrap();
    assert_eq!(only.body["task"]["id"], tasks[0]);
    assert!(driver.next(&lab).is_none());
    // It is delivered, and the posts that now start are all of deleted configurations.
    driver.done(&lab, &only, PostOutcome::Delivered);
    for task in &tasks[..9] {
        lab.result("DeleteTaskPushNotificationConfig", &json!({"taskId": task, "id": "a"}));
    }
    assert_eq!(driver.deliver(&lab).len(), 11 * 3);
}

#[test]
fn push_configs_task_max() {
    let mut setup = setup();
    setup.limits.push_configs_task_max = 2;
    let mut lab = Lab::new(setup);
    let task = long_task(&mut lab);
    assert!(set_v1(&mut lab, &task, "a")["result"].is_object());
    assert!(set_v1(&mut lab, &task, "b")["result"].is_object());
    let beyond = set_v1(&mut lab, &task, "c");
    assert_eq!(beyond["error"]["code"], -32000, "{beyond}");
    assert!(beyond["error"]["message"].as_str().unwrap().contains("push_configs_task_max"));
    // A configuration with the same id is replaced.
    assert!(set_v1(&mut lab, &task, "a")["result"].is_object());
}

#[test]
fn push_bytes_max() {
    let mut setup = setup();
    setup.limits = Limits { push_bytes_max: 3_200, ..Limits::default() };
    let mut lab = Lab::new(setup);
    let task = long_task(&mut lab);
    assert!(set_v1(&mut lab, &task, "a")["result"].is_object());
    assert!(set_v1(&mut lab, &task, "b")["result"].is_object());
    let beyond = set_v1(&mut lab, &task, "c");
    assert!(beyond["error"]["message"].as_str().unwrap().contains("push_bytes_max"), "{beyond}");
    lab.result("DeleteTaskPushNotificationConfig", &json!({"taskId": task, "id": "a"}));
    assert!(set_v1(&mut lab, &task, "c")["result"].is_object());
}

#[test]
fn push_configs_task_host_max() {
    let allow = vec!["allowed.example".parse().unwrap()];
    let targets = PushTargets { allow, ..PushTargets::default() };
    let push = Some(PushSettings { targets, ..PushSettings::default() });
    let mut lab = Lab::new(Setup { push, ..Setup::default() });
    let task = long_task(&mut lab);
    let mut set = |id: String, url: String| {
        let params = json!({"taskId": task, "id": id, "url": url});
        lab.call("CreateTaskPushNotificationConfig", &params)
    };
    for number in 0..8 {
        let url = format!("https://one.example:{}/{number}", 8443 + number);
        assert!(set(number.to_string(), url)["result"].is_object());
    }
    let beyond = set("8".to_owned(), "https://ONE.example/x".to_owned());
    assert_eq!(beyond["error"]["code"], -32000, "{beyond}");
    assert!(beyond["error"].to_string().contains("push_configs_task_host_max"), "{beyond}");
    // A replacement of its own, and another host, are accepted.
    assert!(set("7".to_owned(), "https://one.example/x".to_owned())["result"].is_object());
    assert!(set("8".to_owned(), "https://two.example/".to_owned())["result"].is_object());
    for number in 10..30 {
        let url = format!("https://allowed.example/{number}");
        assert!(set(number.to_string(), url)["result"].is_object());
    }
}

#[test]
fn ids_with_control_characters_are_refused() {
    let mut lab = lab();
    let task = long_task(&mut lab);
    for id in ["a\nb", "\u{0}", "a\u{7f}", "\u{85}"] {
        let answer = set_v1(&mut lab, &task, id);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().starts_with("id: "), "{answer}");
    }
    assert!(set_v1(&mut lab, &task, "é b")["result"].is_object());
}

/// A server with this challenge mode, and a webhook of a task with 1,000 events.
fn flooded(challenge: PushChallenge, url: &str) -> (Lab, WebhookDriver) {
    let allow = vec!["allowed.example".parse().unwrap()];
    let targets = PushTargets { allow, ..PushTargets::default() };
    let push = Some(PushSettings { challenge, targets, ..PushSettings::default() });
    let mut lab = Lab::new(Setup { push, ..Setup::default() });
    lab.result(V1.send(), &with_webhook(V1, "stream:1000", json!({"url": url})));
    let driver = WebhookDriver::of(&lab);
    (lab, driver)
}

#[test]
fn posts_beyond_the_rate_are_merged_up_to_the_final_state() {
    let (mut lab, driver) = flooded(PushChallenge::Never, URL);
    let burst = driver.deliver(&lab);
    assert_eq!(burst.len(), 200);
    assert!(driver.deliver(&lab).is_empty());
    lab.pass(20);
    let joined = driver.deliver(&lab);
    assert_eq!(joined.len(), 1);
    assert!(joined[0].body["task"].is_object());
    assert_eq!(state_of(&joined[0].body), "TASK_STATE_COMPLETED");
    lab.pass(10_000);
    assert!(driver.deliver(&lab).is_empty());
    // Hosts that the operator allows have no rate limit.
    let (lab, driver) = flooded(PushChallenge::Auto, "https://allowed.example/");
    let posts = driver.deliver(&lab);
    assert!(posts.len() > 1_000, "{}", posts.len());
}

#[test]
fn url_is_challenged_only_above_the_usual_post_rate() {
    let (mut lab, driver) = flooded(PushChallenge::Auto, URL);
    assert_eq!(driver.deliver(&lab).len(), 200);
    let next_request = |lab: &Lab| {
        let mut request = PostRequest::default();
        let next = driver.0.next(lab.now, Waker::noop(), &mut request);
        (next == NextRequest::Post).then_some(request)
    };
    lab.pass(20);
    let challenge = next_request(&lab).unwrap();
    assert!(!challenge.expects.is_empty() && challenge.body.is_empty());
    // A failed challenge counts as a post, and delivery continues at the usual rate.
    driver.0.done(&challenge, failed("wrong"), lab.now, 0);
    assert!(next_request(&lab).is_none());
    lab.pass(20);
    let joined = driver.next(&lab).unwrap();
    assert_eq!(state_of(&joined.body), "TASK_STATE_COMPLETED");
    driver.done(&lab, &joined, PostOutcome::Delivered);
    // Other tasks of the caller share the rate; the next challenge waits for a second.
    let more = with_webhook(V1, "stream:1000", json!({"url": URL}));
    lab.result(V1.send(), &Value::clone(&more).take());
    lab.pass(2_000);
    let (mut posts, mut challenges) = (0, 0);
    while let Some(request) = next_request(&lab) {
        let is_challenge = !request.expects.is_empty();
        (posts, challenges) =
            (posts + usize::from(!is_challenge), challenges + usize::from(is_challenge));
        driver.0.done(&request, PostOutcome::Delivered, lab.now, 0);
        lab.pass(1);
    }
    // A confirmed webhook has the higher rate.
    assert!(challenges <= 1, "{challenges}");
    assert!(posts <= 1_003, "{posts}");
}
