//! Reading a task: its status, history and artifacts as they were after a given event.

use super::{
    entry::{ENTRY_HEAD, Entries, Entry},
    event::{TaskEvent, kind},
    pack::{Artifact, Fields, Message, Part, artifact_tag},
    state::{Generation, TaskState},
    task::Task,
};

/// A task as it was after one of its events.
#[derive(Clone, Copy)]
pub struct TaskView<'a> {
    task: &'a Task,
    seq: u32,
    status_at: usize,
}

/// The status of a task (A2A 1.0 §4.1.2).
#[derive(Clone, Copy)]
pub struct Status<'a> {
    /// The state.
    pub state: TaskState,
    /// When it was entered, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What the agent says about it.
    pub message: Option<Message<'a>>,
    /// Raw JSON object that came with the status.
    pub metadata: Option<&'a [u8]>,
}

impl<'a> TaskView<'a> {
    pub(super) fn new(task: &'a Task, seq: u64) -> TaskView<'a> {
        let seq = seq as u32;
        let mut status_at = task.status_at();
        if u64::from(seq) < task.seq() {
            status_at = 0;
            let mut at = task.entries_at();
            while let Some(entry) = Entry::at(task.log(), at).filter(|e| e.seq() <= seq) {
                if entry.kind() == kind::STATUS {
                    status_at = at;
                }
                at += entry.bytes.len();
            }
        }
        TaskView { task, seq, status_at }
    }

    /// Raw task id.
    pub fn id(&self) -> &'a [u8] {
        self.task.id()
    }

    /// Raw context id.
    pub fn context_id(&self) -> &'a [u8] {
        self.task.context_id()
    }

    /// The wire family of the call that made the task.
    pub fn generation(&self) -> Generation {
        self.task.generation()
    }

    /// The event after which this is the task.
    pub fn seq(&self) -> u64 {
        u64::from(self.seq)
    }

    /// The status.
    pub fn status(&self) -> Status<'a> {
        match Entry::at(self.task.log(), self.status_at).and_then(|entry| entry.event()) {
            Some(TaskEvent::Status { state, at_ms, message, metadata }) => {
                Status { state, at_ms, message, metadata }
            }
            Some(TaskEvent::Turn { .. } | TaskEvent::Artifact { .. }) | None => {
                Status { state: TaskState::Unspecified, at_ms: 0, message: None, metadata: None }
            }
        }
    }

    fn entries(&self) -> impl Iterator<Item = (usize, Entry<'a>)> + use<'a> {
        let seq = self.seq;
        Entries { log: self.task.log(), at: self.task.entries_at() }
            .filter(move |(_, entry)| entry.lives_at(seq))
    }

    fn messages(&self) -> impl Iterator<Item = Message<'a>> + use<'a> {
        let status_at = self.status_at;
        self.entries().filter_map(move |(at, entry)| match entry.event()? {
            TaskEvent::Turn { message } => Some(message),
            TaskEvent::Status { message, .. } => message.filter(|_| at != status_at),
            TaskEvent::Artifact { .. } => None,
        })
    }

    /// The newest `most` messages of the history (`None`: all), oldest first.
    ///
    /// The message of the current status is not part of it (A2A 1.0 §4.1.1).
    pub fn history(&self, most: Option<u32>) -> impl Iterator<Item = Message<'a>> + use<'a> {
        let skip = match most {
            None => 0,
            Some(most) => self.messages().count().saturating_sub(most as usize),
        };
        self.messages().skip(skip)
    }

    /// The newest message a client sent.
    pub fn last_turn(&self) -> Option<Message<'a>> {
        let turns = self.entries().filter(|(_, entry)| entry.is_turn());
        turns.last().map(|(_, entry)| Message(&entry.bytes[ENTRY_HEAD..]))
    }

    /// The artifacts, in the order in which they appeared.
    pub fn artifacts(&self) -> impl Iterator<Item = ArtifactView<'a>> + use<'a> {
        let (log, seq) = (self.task.log(), self.seq);
        let mut chained: smallvec::SmallVec<[usize; 8]> = smallvec::SmallVec::new();
        self.entries().filter_map(move |(at, entry)| {
            if entry.kind() != kind::ARTIFACT {
                return None;
            }
            // A chunk is announced by the entry before it; what nobody announced starts a chain.
            if let Some(found) = chained.iter().position(|next| *next == at) {
                chained.swap_remove(found);
                chained.extend((entry.next() != 0).then(|| entry.next()));
                return None;
            }
            chained.extend((entry.next() != 0).then(|| entry.next()));
            Some(ArtifactView { log, at, seq })
        })
    }
}

/// One artifact with everything that was appended to it.
#[derive(Clone, Copy)]
pub struct ArtifactView<'a> {
    log: &'a [u8],
    at: usize,
    seq: u32,
}

impl<'a> ArtifactView<'a> {
    fn chunks(&self) -> impl Iterator<Item = Artifact<'a>> + use<'a> {
        let ArtifactView { log, mut at, seq } = *self;
        std::iter::from_fn(move || {
            let entry = (at != 0).then(|| Entry::at(log, at)).flatten()?;
            at = entry.next();
            (entry.seq() <= seq).then(|| entry.artifact()).flatten()
        })
    }

    /// The first chunk: identity, name, description, extensions and metadata are its own.
    pub fn head(&self) -> Artifact<'a> {
        self.chunks().next().unwrap_or(Artifact(&[]))
    }

    /// Fields of the head other than parts.
    pub fn fields(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        Fields(self.head().0).filter(|(tag, _)| *tag != artifact_tag::PART)
    }

    /// The parts of all chunks, in order.
    pub fn parts(&self) -> impl Iterator<Item = Part<'a>> + use<'a> {
        self.chunks().flat_map(|chunk| {
            Fields(chunk.0)
                .filter(|(tag, _)| *tag == artifact_tag::PART)
                .map(|(_, part)| Part(part))
        })
    }
}

/// A place in a task's events, and where in the log it was last seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayPlace {
    offset: u32,
    squeezes: u32,
}

impl Task {
    /// Gives the events after `seq` to `each`, oldest first, until it returns false.
    ///
    /// `place` remembers the position between calls, so that following N events costs O(N).
    /// Returns the sequence number up to which events were given.
    pub fn replay<'a>(
        &'a self,
        seq: u64,
        place: &mut ReplayPlace,
        each: &mut dyn FnMut(u64, TaskEvent<'a>) -> bool,
    ) -> u64 {
        if place.offset == 0 || place.squeezes != self.squeezes() {
            *place = ReplayPlace { offset: self.entries_at() as u32, squeezes: self.squeezes() };
        }
        let mut given = seq;
        while let Some(entry) = Entry::at(self.log(), place.offset as usize) {
            let fresh = u64::from(entry.seq()) > given && !entry.is_turn();
            place.offset += entry.bytes.len() as u32;
            if !fresh {
                continue;
            }
            given = u64::from(entry.seq());
            if let Some(event) = entry.event()
                && !each(given, event)
            {
                break;
            }
        }
        given
    }
}
