//! Which events a webhook gets: the extension [`PUSH_EVENTS`](super::Extension::PUSH_EVENTS).

use super::{TaskEvent, TaskState};

/// Which events a webhook gets; none named: all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PushFilter(u8);

impl PushFilter {
    /// Everything.
    pub const ALL: PushFilter = PushFilter(0);
    /// Each status.
    pub const STATUS: PushFilter = PushFilter(1);
    /// Artifacts, and pieces of them.
    pub const ARTIFACTS: PushFilter = PushFilter(2);
    /// A status that ends the task, or asks somebody for something.
    pub const FINAL: PushFilter = PushFilter(4);
    /// Several events that wait at the same time are one: the task as it is then.
    pub const COALESCE: PushFilter = PushFilter(8);

    /// The kinds by their names on the wire.
    pub const KINDS: [(&'static str, PushFilter); 3] = [
        ("status", PushFilter::STATUS),
        ("artifacts", PushFilter::ARTIFACTS),
        ("final", PushFilter::FINAL),
    ];

    /// This one and another together.
    #[must_use]
    pub const fn with(self, other: PushFilter) -> PushFilter {
        PushFilter(self.0 | other.0)
    }

    /// Whether it says that.
    pub const fn has(self, what: PushFilter) -> bool {
        self.0 & what.0 != 0
    }

    /// The kinds that it names.
    pub fn kinds(self) -> impl Iterator<Item = &'static str> {
        let named = PushFilter::KINDS.into_iter().filter(move |(_, kind)| self.has(*kind));
        named.map(|(name, _)| name)
    }

    /// Whether it names no kind.
    const fn is_open(self) -> bool {
        self.0 & (1 | 2 | 4) == 0
    }

    /// Whether a status is to be posted.
    pub fn takes_status(self, state: TaskState) -> bool {
        let is_final = state.is_terminal() || state.is_interrupted();
        self.is_open() || self.has(PushFilter::STATUS) || is_final && self.has(PushFilter::FINAL)
    }

    /// Whether an event is to be posted.
    pub fn takes(self, event: &TaskEvent<'_>) -> bool {
        match event {
            TaskEvent::Status { state, .. } => self.takes_status(*state),
            TaskEvent::Artifact { .. } => self.is_open() || self.has(PushFilter::ARTIFACTS),
            TaskEvent::UserMessage { .. } => false,
        }
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// What [`PushFilter::bits`] gave.
    pub(crate) const fn of_bits(bits: u8) -> PushFilter {
        PushFilter(bits & 15)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_kind_takes_all_of_them() {
        let status = |state| TaskEvent::Status { state, at_ms: 0, message: None, metadata: None };
        let (working, done) = (status(TaskState::Working), status(TaskState::Completed));
        let asks = status(TaskState::InputRequired);
        for (filter, takes) in [
            (PushFilter::ALL, [true, true, true]),
            (PushFilter::COALESCE, [true, true, true]),
            (PushFilter::STATUS, [true, true, true]),
            (PushFilter::FINAL, [false, true, true]),
            (PushFilter::ARTIFACTS, [false, false, false]),
            (PushFilter::ARTIFACTS.with(PushFilter::FINAL), [false, true, true]),
        ] {
            assert_eq!([&working, &done, &asks].map(|event| filter.takes(event)), takes);
            assert_eq!(PushFilter::of_bits(filter.bits()), filter);
        }
        let named = PushFilter::FINAL.with(PushFilter::STATUS).with(PushFilter::COALESCE);
        assert_eq!(named.kinds().collect::<Vec<_>>(), ["status", "final"]);
    }
}
