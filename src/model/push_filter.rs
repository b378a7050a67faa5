//! Which events a webhook gets: the extension [`PUSH_EVENTS`](super::Extension::PUSH_EVENTS).

use super::{TaskEvent, TaskState};

/// Above those of kinds.
const COALESCE_BIT: u8 = 8;

/// Which events a webhook gets, by their kinds; none named: all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PushFilter {
    /// A bit for each kind that is named.
    kinds: u8,
    coalesce: bool,
}

impl PushFilter {
    /// Everything.
    pub const ALL: PushFilter = PushFilter::kind(0);
    /// Each status.
    pub const STATUS: PushFilter = PushFilter::kind(1);
    /// Artifacts, and pieces of them.
    pub const ARTIFACTS: PushFilter = PushFilter::kind(2);
    /// A status that ends the task, or asks somebody for something.
    pub const FINAL: PushFilter = PushFilter::kind(4);

    /// The kinds by their names on the wire.
    const KINDS: [(&'static str, PushFilter); 3] = [
        ("status", PushFilter::STATUS),
        ("artifacts", PushFilter::ARTIFACTS),
        ("final", PushFilter::FINAL),
    ];

    const fn kind(kinds: u8) -> PushFilter {
        PushFilter { kinds, coalesce: false }
    }

    /// The kind of this name on the wire: `status`, `artifacts` or `final`.
    pub fn named(name: &str) -> Option<PushFilter> {
        PushFilter::KINDS.into_iter().find(|(kind, _)| *kind == name).map(|(_, filter)| filter)
    }

    /// This one and another together.
    #[must_use]
    pub const fn with(self, other: PushFilter) -> PushFilter {
        let coalesce = self.coalesce || other.coalesce;
        PushFilter { kinds: self.kinds | other.kinds, coalesce }
    }

    /// It, and whether several events that wait at the same time are one: the task as it is then.
    #[must_use]
    pub const fn coalesced(self, coalesce: bool) -> PushFilter {
        PushFilter { coalesce, ..self }
    }

    /// Whether several events that wait at the same time are one.
    pub const fn is_coalesced(self) -> bool {
        self.coalesce
    }

    /// The kinds that it names, as on the wire.
    pub fn kinds(self) -> impl Iterator<Item = &'static str> {
        let named = PushFilter::KINDS.into_iter().filter(move |(_, kind)| self.has(*kind));
        named.map(|(name, _)| name)
    }

    const fn has(self, kind: PushFilter) -> bool {
        self.kinds & kind.kinds != 0
    }

    /// Whether it names no kind.
    const fn is_open(self) -> bool {
        self.kinds == 0
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

    /// It as one byte, as configurations keep it.
    pub(crate) const fn bits(self) -> u8 {
        self.kinds | if self.coalesce { COALESCE_BIT } else { 0 }
    }

    /// What [`PushFilter::bits`] gave.
    pub(crate) const fn of_bits(bits: u8) -> PushFilter {
        PushFilter { kinds: bits & (COALESCE_BIT - 1), coalesce: bits & COALESCE_BIT != 0 }
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
            (PushFilter::ALL.coalesced(true), [true, true, true]),
            (PushFilter::STATUS, [true, true, true]),
            (PushFilter::FINAL, [false, true, true]),
            (PushFilter::ARTIFACTS, [false, false, false]),
            (PushFilter::ARTIFACTS.with(PushFilter::FINAL), [false, true, true]),
        ] {
            assert_eq!([&working, &done, &asks].map(|event| filter.takes(event)), takes);
            assert_eq!(PushFilter::of_bits(filter.bits()), filter);
        }
        let named = PushFilter::FINAL.with(PushFilter::STATUS).coalesced(true);
        assert!(named.is_coalesced() && PushFilter::of_bits(named.bits()) == named);
        assert_eq!(named.kinds().collect::<Vec<_>>(), ["status", "final"]);
    }
}
