//! The agent of `docs/guide/agent.md`, which explains it: each word shows one way to answer.
//!
//! `cargo run --example agent`, then send it `ping`, `report`, `sign` and a file, `count`,
//! `coffee`, `work` or anything else, the agents `later` and `printer` anything at all, and `clerk`
//! `price`, `order` or anything else.

use std::{error::Error, sync::Arc, thread, time::Duration};

use peregrine::{
    agent::{
        Adopted, Agent, CancelRequest, Closed, Deferred, DeferredLookup, Job, Profile, Skill,
        TaskLookup, Turn,
    },
    engine::{AgentError, Agents},
    fault::{Fault, FaultKind},
    model::{
        ArtifactBuf, Content, Generation, Json, JsonObject, MessageBuf, PartBuf, PartsBuf, Refusal,
        TaskBuf, TaskState, ValueError,
    },
    net::{self, Server, ServerError},
};

struct Waiter;

impl Agent for Waiter {
    fn start(&self, mut turn: Turn<'_>) {
        let words = turn.message.text();
        match (turn.state, words.as_str()) {
            (Some(TaskState::InputRequired), size) => brew(turn, size),
            (_, "ping") => turn.reply(say("pong")),
            (_, "report") => report(&mut turn),
            (_, "sign") => sign(&mut turn),
            (_, "count") => count(turn, 1),
            (_, "coffee") => turn.status_with(TaskState::InputRequired, &say("What size?")),
            (_, "work") => work(turn),
            (_, other) => refuse(&mut turn, other),
        }
    }

    fn resume(&self, turn: Turn<'_>, token: u64) {
        count(turn, token);
    }
}

fn say(text: &str) -> MessageBuf {
    MessageBuf::agent(&PartsBuf::new().text(text))
}

fn report(turn: &mut Turn<'_>) {
    match written() {
        Ok(report) => {
            turn.artifact(&report);
            turn.status(TaskState::Completed);
        }
        Err(error) => turn.status_with(TaskState::Failed, &say(&error.to_string())),
    }
}

fn written() -> Result<ArtifactBuf, ValueError> {
    let table = PartBuf::bytes(b"region,growth\nnorth,7\n")
        .filename("growth.csv")
        .media_type("text/csv")
        .metadata(JsonObject::parse(r#"{"rows": 1}"#)?);
    let parts = PartsBuf::new()
        .text("The north grew the fastest.")
        .data(Json::parse(r#"{"north": 7}"#)?)
        .part(&table);
    Ok(ArtifactBuf::new("report", &parts).name("Growth by region"))
}

fn sign(turn: &mut Turn<'_>) {
    let mut parts = PartsBuf::new();
    for part in turn.message.parts() {
        parts = match part.content() {
            Content::Raw(file) => {
                let mut bytes = file.decode_base64().unwrap_or_default();
                bytes.extend_from_slice(b"signed\n");
                let mut signed = PartBuf::bytes(&bytes);
                if let Some(name) = part.filename() {
                    signed = signed.filename(name);
                }
                parts.part(&signed)
            }
            Content::Url(_) | Content::Data(_) | Content::Unknown(_) => parts.part(part),
            Content::Text(_) => parts,
        };
    }
    turn.artifact(&ArtifactBuf::new("signed", &parts));
    turn.status(TaskState::Completed);
}

fn count(mut turn: Turn<'_>, number: u64) {
    let chunk = ArtifactBuf::new("numbers", &PartsBuf::new().text(&format!("{number} ")));
    turn.chunk(&chunk, number > 1, number == 3);
    if number == 3 {
        turn.status(TaskState::Completed);
    } else {
        turn.resume_after(50, number + 1);
    }
}

fn brew(mut turn: Turn<'_>, size: &str) {
    let mut order = String::new();
    turn.read(&mut |task| {
        if let Some(first) = task.history(None).next() {
            order = first.text();
        }
    });
    let cup = PartsBuf::new().text(&format!("one {size} {order}"));
    turn.artifact(&ArtifactBuf::new("cup", &cup));
    turn.status(TaskState::Completed);
}

fn work(mut turn: Turn<'_>) {
    turn.status(TaskState::Working);
    if let Ok(job) = turn.detach() {
        // A job that is dropped without a result fails its task; one that is closed has ended.
        thread::spawn(move || toil(job));
    }
}

fn toil(mut job: Job) -> Result<(), Closed> {
    for step in 1..=3 {
        thread::sleep(Duration::from_millis(20));
        job.status(TaskState::Working, Some(&say(&format!("step {step} of 3"))))?;
    }
    job.artifact(&ArtifactBuf::new("result", &PartsBuf::new().text("done")))?;
    job.status(TaskState::Completed, None)
}

fn refuse(turn: &mut Turn<'_>, words: &str) {
    let why = say(&format!("I do not know what {words:?} is."));
    turn.status_with(TaskState::Rejected, &why);
}

fn print(mut job: Job) -> Result<(), Closed> {
    for page in 1..=3 {
        thread::sleep(Duration::from_millis(20));
        job.status(TaskState::Working, Some(&say(&format!("page {page} of 3"))))?;
    }
    job.reply(say("printed"))
}

fn twice(job: Job) -> Result<(), Box<dyn Error>> {
    let number: i64 = job.message().text().trim().parse()?;
    job.reply((2 * number).to_string())?;
    Ok(())
}

async fn later(mut job: Job) -> Result<(), Closed> {
    job.status(TaskState::Working, None)?;
    net::sleep(Duration::from_millis(50)).await;
    let parts = PartsBuf::new().text(&format!("You said: {}", job.message().text()));
    job.artifact(&ArtifactBuf::new("echo", &parts))?;
    job.status(TaskState::Completed, None)
}

/// Decides on a message before there is a task; an order becomes a task, and is binding.
struct Clerk;

impl Agent for Clerk {
    fn start(&self, turn: Turn<'_>) {
        if let Ok(deferred) = turn.defer() {
            thread::spawn(move || decide(deferred));
        }
    }

    fn cancel(&self, cancel: CancelRequest<'_>) {
        cancel.refuse("an order is binding");
    }

    fn missing(&self, lookup: TaskLookup<'_>) {
        if lookup.task_id == *"order-1"
            && let Ok(lookup) = lookup.defer()
        {
            thread::spawn(move || fetch(lookup));
        }
    }
}

fn decide(deferred: Deferred) -> Result<(), Closed> {
    thread::sleep(Duration::from_millis(20));
    match (deferred.request().state(), deferred.message().text().as_str()) {
        (None, "price") => deferred.reply(say("3 coins")),
        (None, "order") => {
            deferred.into_job()?.status(TaskState::InputRequired, Some(&say("Where to?")))?;
        }
        (None, _) => {
            let why = "we sell coffee, and nothing else";
            deferred.refuse(Fault::because(FaultKind::UnsupportedOperation, why));
        }
        // A reply on a task completes it.
        (Some(_), address) => {
            let sent = say(&format!("sent to {address}"));
            deferred.reply(sent);
        }
    }
    Ok(())
}

/// The first order is in the cellar.
fn fetch(lookup: DeferredLookup) -> Result<(), Refusal> {
    thread::sleep(Duration::from_millis(20));
    let mut order = TaskBuf::new("order-1", "counter", Generation::V1)?;
    order.status(TaskState::Completed, 1_700_000_000_000, Some(&say("sent").id("sent-1")))?;
    lookup.found(order);
    Ok(())
}

/// Reports its stops one after the other, and stores the next one with its task.
struct Courier;

impl Agent for Courier {
    fn start(&self, mut turn: Turn<'_>) {
        turn.status(TaskState::Working);
        if let Ok(job) = turn.detach() {
            thread::spawn(move || deliver(job, 1));
        }
    }

    fn adopt(&self, task: Adopted) {
        let next = task.kept().first().copied().unwrap_or(1);
        let job = task.into_job();
        thread::spawn(move || deliver(job, next));
    }
}

fn deliver(mut job: Job, next: u8) -> Result<(), Closed> {
    for stop in next..=5 {
        thread::sleep(Duration::from_millis(20));
        job.status(TaskState::Working, Some(&say(&format!("stop {stop} of 5"))))?;
        // Without it the next program would begin anew.
        let _ = job.keep(&[stop + 1]);
    }
    job.status(TaskState::Completed, Some(&say("delivered")))
}

/// Adds the courier to a server that runs.
pub fn hire(agents: &Agents) -> Result<(), AgentError> {
    agents.add(Profile::new("courier", "Delivers."), Arc::new(Courier))?;
    Ok(())
}

/// Replaces the courier's program; the new one continues its tasks.
pub fn update(agents: &Agents) -> Result<(), AgentError> {
    agents.replace(Profile::new("courier", "Delivers as well."), Arc::new(Courier))?;
    Ok(())
}

/// All of them, on 127.0.0.1:3000.
pub fn server() -> Server {
    let mut profile = Profile::new("waiter", "Shows every way to answer.");
    profile.documentation_url = Some("https://example.com/waiter".to_owned());
    profile.skills = vec![Skill {
        id: "coffee".to_owned(),
        name: "Coffee".to_owned(),
        description: "Brews a cup, once it knows the size.".to_owned(),
        tags: vec!["drinks".to_owned()],
        examples: vec!["coffee".to_owned()],
        ..Skill::default()
    }];
    Server::new()
        .agent(profile, Waiter)
        .agent(Profile::new("later", "Takes its time."), net::async_agent(later))
        .agent(Profile::new("printer", "Prints."), net::blocking_agent(print).threads(4).queue(64))
        .agent(Profile::new("twice", "Doubles a number."), net::blocking_agent(twice))
        .agent(Profile::new("clerk", "Takes orders."), Clerk)
}

fn main() -> Result<(), ServerError> {
    server().run()
}
