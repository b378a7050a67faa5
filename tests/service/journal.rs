//! A journal hook that reports records as durable when the test confirms them.

use std::{
    sync::Mutex,
    task::Waker,
    time::{Duration, Instant},
};

use peregrine::{
    model::TaskEvent,
    service::{
        Handle,
        tap::{Record, Tap},
    },
};

use crate::support::binary::{PATIENCE, eventually};

/// Records all lines; they are durable when the test confirms them.
#[derive(Default)]
pub struct Journal(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    lines: Vec<(Handle, String)>,
    /// The id and handle of each task.
    ids: Vec<(String, Handle)>,
    durable: u64,
    waiting: Vec<(u64, Waker)>,
    wait_count: usize,
}

impl Tap for Journal {
    fn record(&self, task: Handle, record: Record<'_>) -> u64 {
        let mut inner = self.0.lock().unwrap();
        if let Record::Created { id, .. } = record {
            inner.ids.push((std::str::from_utf8(id.raw()).unwrap().to_owned(), task));
        }
        let line = match record {
            Record::Created { is_chosen, .. } => format!("created {is_chosen}"),
            Record::Changed(TaskEvent::Status { state, .. }) => format!("{state:?}"),
            Record::Changed(TaskEvent::Artifact { .. }) => "artifact".to_owned(),
            Record::Changed(TaskEvent::UserMessage { .. }) => "message".to_owned(),
            Record::Kept(bytes) => format!("kept {}", bytes.len()),
            _ => "evicted".to_owned(),
        };
        inner.lines.push((task, format!("{} {line}", record.kind())));
        inner.lines.len() as u64
    }

    fn durable(&self) -> u64 {
        self.0.lock().unwrap().durable
    }

    fn wait(&self, number: u64, wake: &Waker) {
        let mut inner = self.0.lock().unwrap();
        if inner.durable >= number {
            wake.wake_by_ref();
        }
        inner.wait_count += 1;
        inner.waiting.push((number, wake.clone()));
    }
}

impl Journal {
    /// The number of the last record.
    pub fn recorded(&self) -> u64 {
        self.0.lock().unwrap().lines.len() as u64
    }

    /// Makes all records up to this one durable.
    pub fn confirm(&self, number: u64) {
        let mut inner = self.0.lock().unwrap();
        inner.durable = number;
        let (due, waiting) = inner.waiting.drain(..).partition(|(waits, _)| *waits <= number);
        inner.waiting = waiting;
        drop(inner);
        let due: Vec<(u64, Waker)> = due;
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Waits until the hook was called to wait for the `count`th time.
    pub fn until_wait_count(&self, count: usize) {
        let until = Instant::now() + PATIENCE;
        while self.0.lock().unwrap().wait_count < count {
            assert!(Instant::now() < until, "nobody waits");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn wait_count(&self) -> usize {
        self.0.lock().unwrap().wait_count
    }

    /// The id of the newest task.
    pub fn last_id(&self) -> String {
        self.0.lock().unwrap().ids.last().unwrap().0.clone()
    }

    /// The last record of the task with this id.
    pub fn last_record_of(&self, id: &str) -> u64 {
        let inner = self.0.lock().unwrap();
        let (_, task) = inner.ids.iter().find(|(stored, _)| stored == id).unwrap();
        let last = inner.lines.iter().rposition(|(stored, _)| stored == task);
        last.unwrap() as u64 + 1
    }

    /// Waits for so many records.
    pub fn until_recorded(&self, count: u64) {
        eventually("there are so many records", || self.recorded() >= count);
    }

    /// The handles of the records, in order.
    pub fn handles(&self) -> Vec<Handle> {
        self.0.lock().unwrap().lines.iter().map(|(task, _)| *task).collect()
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().lines.iter().map(|(_, line)| line.clone()).collect()
    }
}
