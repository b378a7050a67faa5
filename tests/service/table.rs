//! A service that answers from a file: each line has a task, its state, and its message.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    task::{Poll, Waker},
};

use peregrine::{
    agent::Profile,
    engine::Setup,
    fault::{Fault, FaultKind},
    model::{Call, Generation, MessageBuf, PartsBuf, Reply, TaskBuf, TaskState},
    service::{
        AgentIndex, Answer, CallCx, Cursor, Each, Follow, Lifecycle, Outcome, Service, WaitHandle,
    },
};
use serde_json::json;

use crate::support::Lab;

/// Tasks that were done elsewhere; it accepts no messages.
struct Table {
    profile: Arc<Profile>,
    tasks: Vec<TaskBuf>,
}

impl Table {
    fn read(path: &Path) -> io::Result<Table> {
        let text = fs::read_to_string(path)?;
        let tasks = text.lines().enumerate().map(|(line, text)| row(line, text));
        let tasks = tasks.collect::<Option<Vec<TaskBuf>>>().ok_or(io::ErrorKind::InvalidData)?;
        Ok(Table { profile: Arc::new(Profile::new("table", "What was done.")), tasks })
    }
}

fn row(line: usize, text: &str) -> Option<TaskBuf> {
    let (id, rest) = text.split_once(' ')?;
    let (state, words) = rest.split_once(' ')?;
    let state = TaskState::ALL.into_iter().find(|one| format!("{one:?}") == state)?;
    let mut task = TaskBuf::new(id, "the-table", Generation::V1).ok()?;
    let message = MessageBuf::agent(&PartsBuf::new().text(words)).id(&*format!("line-{line}"));
    task.status(state, line as u64 * 1000, Some(&message)).ok()?;
    Some(task)
}

impl Lifecycle for Table {}

impl Service for Table {
    fn call(
        &self,
        _: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        match call {
            Call::Get(get) => {
                let found = self.tasks.iter().find(|task| task.view().id() == get.id);
                let view = found.ok_or(FaultKind::TaskNotFound)?.view();
                answer(Reply::Task { view, history: get.history });
            }
            Call::List(list) => {
                answer(Reply::PageStart);
                let (history, artifacts) = (list.history, list.include_artifacts);
                for task in self.tasks.iter().rev() {
                    answer(Reply::PageTask { view: task.view(), history, artifacts });
                }
                let total = self.tasks.len() as u64;
                answer(Reply::PageEnd { next: "", page_size: total as u32, total });
            }
            Call::Send(_) | Call::Cancel(_) | Call::Subscribe(_) | Call::Push(_) => {
                return Err(FaultKind::UnsupportedOperation.into());
            }
            Call::ExtendedCard => return Err(FaultKind::ExtendedAgentCardNotConfigured.into()),
        }
        Ok(Outcome::Answered)
    }

    fn poll(
        &self,
        _: &mut WaitHandle,
        _: &Waker,
        _: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>> {
        Poll::Ready(Err(FaultKind::TaskNotFound.into()))
    }

    fn follow(&self, _: &mut Cursor, _: &Waker, _: &mut Each<'_>) -> Follow {
        Follow::Gone
    }

    fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>> {
        (agent == AgentIndex(0)).then(|| Arc::clone(&self.profile))
    }
}

#[test]
fn service_answers_calls_from_a_file() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("table.txt");
    fs::write(&path, "t-1 Completed all is well\nt-2 Failed the \"disk\" is full\n").unwrap();
    let table: Arc<dyn Service> = Arc::new(Table::read(&path).unwrap());
    let mut lab = Lab::new(Setup { service: Some(table), ..Setup::default() });
    let task = lab.result("GetTask", &json!({ "id": "t-2" }));
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "the \"disk\" is full");
    let list = lab.result("ListTasks", &json!({}));
    assert_eq!((&list["tasks"][1]["id"], &list["totalSize"]), (&json!("t-1"), &json!(2)));
    assert_eq!(lab.code("GetTask", &json!({ "id": "t-3" })), -32001);
    assert_eq!(lab.code("CancelTask", &json!({ "id": "t-1" })), -32004);
}
