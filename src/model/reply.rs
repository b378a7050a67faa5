//! The answers of a service: views that live while the answer is being written.

use super::{pack::Message, push::PushConfig, text::RawText, view::TaskView};

/// One answer, or one piece of a page. The service passes it to the caller's writer by reference,
/// while the task is locked, so no data is copied in between.
#[derive(Clone, Copy)]
pub enum Reply<'a> {
    /// A task, with the requested part of its history.
    Task {
        /// The task.
        view: TaskView<'a>,
        /// At most this many messages of history; `None`: all.
        history: Option<u32>,
    },
    /// A direct message; no task exists.
    Message {
        /// The agent's message.
        message: Message<'a>,
        /// The conversation it belongs to.
        context_id: RawText<'a>,
    },
    /// A page of tasks follows.
    PageStart,
    /// One task of the page.
    PageTask {
        /// The task.
        view: TaskView<'a>,
        /// At most this many messages; `None`: leave the history out.
        history: Option<u32>,
        /// False: leave the artifacts out.
        artifacts: bool,
    },
    /// The page is complete.
    PageEnd {
        /// Token of the next page, ASCII; empty on the last page.
        next: &'a str,
        /// The page size that was applied.
        page_size: u32,
        /// Matching tasks before paging.
        total: u64,
    },
    /// The result of an operation on push configurations.
    Push(PushReply<'a>),
}

/// The result of an operation on push configurations.
#[derive(Clone, Copy, Debug)]
pub enum PushReply<'a> {
    /// A configuration, which has an id.
    Config {
        /// Its task; empty if it applies to several (Evo AI).
        task_id: RawText<'a>,
        /// The configuration.
        config: PushConfig<'a>,
    },
    /// There is no configuration; only 0.1 and Evo AI can express that.
    NoConfig {
        /// The task.
        task_id: RawText<'a>,
    },
    /// A list follows.
    ListStart,
    /// One configuration of the list.
    Listed {
        /// Its task.
        task_id: RawText<'a>,
        /// The configuration.
        config: PushConfig<'a>,
    },
    /// The list is complete.
    ListEnd {
        /// Token of the next page, ASCII; empty on the last page.
        next: &'a str,
    },
    /// The configuration was deleted, or did not exist.
    Deleted,
}
