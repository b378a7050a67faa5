//! Task states, roles and protocol generations, with the facts that all modules share.

/// State of a task (A2A 1.0 §4.1.3, `TaskState`); the discriminants are the proto numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TaskState {
    /// `TASK_STATE_UNSPECIFIED`, `unknown` before 1.0.
    Unspecified = 0,
    /// Accepted, not yet started.
    Submitted = 1,
    /// Being worked on.
    Working = 2,
    /// Done; terminal.
    Completed = 3,
    /// Ended by an error; terminal.
    Failed = 4,
    /// Ended by a client; terminal.
    Canceled = 5,
    /// Waits for a client's message; interrupted.
    InputRequired = 6,
    /// Refused by the agent; terminal.
    Rejected = 7,
    /// Waits for credentials; interrupted.
    AuthRequired = 8,
}

impl TaskState {
    /// Every state, in the order of the proto numbers.
    pub const ALL: [TaskState; 9] = [
        TaskState::Unspecified,
        TaskState::Submitted,
        TaskState::Working,
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Canceled,
        TaskState::InputRequired,
        TaskState::Rejected,
        TaskState::AuthRequired,
    ];

    /// Its name in 0.3, which the admin interface, scripts and programs also use (wire §1.6).
    pub const fn word(self) -> &'static str {
        match self {
            TaskState::Unspecified => "unknown",
            TaskState::Submitted => "submitted",
            TaskState::Working => "working",
            TaskState::Completed => "completed",
            TaskState::Failed => "failed",
            TaskState::Canceled => "canceled",
            TaskState::InputRequired => "input-required",
            TaskState::Rejected => "rejected",
            TaskState::AuthRequired => "auth-required",
        }
    }

    /// The state with this name that an agent can set; `None`: no such state, or `unknown`.
    #[cfg(any(feature = "gateway", feature = "internals", feature = "script"))]
    pub(crate) fn of_word(word: &str) -> Option<TaskState> {
        let named = TaskState::ALL.into_iter().filter(|state| *state != TaskState::Unspecified);
        named.into_iter().find(|state| state.word() == word)
    }

    /// The state with this proto number, if there is one.
    pub fn from_number(number: u8) -> Option<TaskState> {
        TaskState::ALL.get(usize::from(number)).copied()
    }

    /// True for the four states after which nothing changes (A2A 1.0 §4.1.3).
    pub fn is_terminal(self) -> bool {
        match self {
            TaskState::Completed
            | TaskState::Failed
            | TaskState::Canceled
            | TaskState::Rejected => true,
            TaskState::Unspecified
            | TaskState::Submitted
            | TaskState::Working
            | TaskState::InputRequired
            | TaskState::AuthRequired => false,
        }
    }

    /// True for the two states in which the task waits for its client.
    pub fn is_interrupted(self) -> bool {
        matches!(self, TaskState::InputRequired | TaskState::AuthRequired)
    }
}

/// The author of a message (A2A 1.0 §4.1.5, `Role`); the discriminants are the proto numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// The client side.
    User = 1,
    /// The agent side.
    Agent = 2,
}

/// The family of protocol versions of a call, or of the call that created a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Generation {
    /// Protocol 0.1: `tasks/send`, parts by `type`.
    V01 = 1,
    /// Protocol 0.2 and 0.3: `message/send`, parts by `kind`.
    V03 = 3,
    /// Protocol 1.0: `SendMessage`, parts by member.
    V1 = 10,
}
