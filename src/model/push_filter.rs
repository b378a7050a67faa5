//! Which events a webhook gets: the extension [`PUSH_EVENTS`](super::Extension::PUSH_EVENTS).

use super::{TaskEvent, TaskState};

/// Above those of kinds: whether events are one, and whether that and the kinds were said.
const COALESCE_BIT: u8 = 8;
const SAYS_COALESCE_BIT: u8 = 16;
const SAYS_KINDS_BIT: u8 = 32;

/// Which events a webhook gets, and how: each of the two may be left to the server. The default
/// leaves both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PushFilter {
    /// A bit for each kind that is named; none named: all of them.
    kinds: Option<u8>,
    coalesce: Option<bool>,
}

impl PushFilter {
    /// Everything.
    pub const ALL: PushFilter = PushFilter::kind(0);
    /// Each status.
    pub const STATUS: PushFilter = PushFilter::kind(1);
    /// Artifacts, and pieces of them.
    pub const ARTIFACTS: PushFilter = PushFilter::kind(2);
    /// A status that ends the task, or asks for input.
    pub const FINAL: PushFilter = PushFilter::kind(4);

    /// The kinds by their names on the wire.
    const KINDS: [(&'static str, PushFilter); 3] = [
        ("status", PushFilter::STATUS),
        ("artifacts", PushFilter::ARTIFACTS),
        ("final", PushFilter::FINAL),
    ];

    const fn kind(kinds: u8) -> PushFilter {
        PushFilter { kinds: Some(kinds), coalesce: None }
    }

    /// The kind of this name on the wire: `status`, `artifacts` or `final`.
    pub fn named(name: &str) -> Option<PushFilter> {
        PushFilter::KINDS.into_iter().find(|(kind, _)| *kind == name).map(|(_, filter)| filter)
    }

    /// The kinds of this one and of another together; of the rest this one counts.
    #[must_use]
    pub fn with(self, other: PushFilter) -> PushFilter {
        let kinds = self.kinds.zip(other.kinds).map(|(own, others)| own | others);
        PushFilter { kinds: kinds.or(self.kinds).or(other.kinds), ..self.or(other) }
    }

    /// It, and what another one says that it leaves open.
    #[must_use]
    pub fn or(self, other: PushFilter) -> PushFilter {
        let PushFilter { kinds, coalesce } = other;
        PushFilter { kinds: self.kinds.or(kinds), coalesce: self.coalesce.or(coalesce) }
    }

    /// It, and whether several events that wait at the same time are one: the task as it is then.
    #[must_use]
    pub const fn coalesced(self, coalesce: bool) -> PushFilter {
        PushFilter { coalesce: Some(coalesce), ..self }
    }

    /// Whether several events that wait at the same time are one; `None`: it does not say.
    pub const fn coalesces(self) -> Option<bool> {
        self.coalesce
    }

    /// The kinds that it names, as on the wire; `None`: it does not say.
    pub fn kinds(self) -> Option<impl Iterator<Item = &'static str>> {
        self.kinds?;
        let named = PushFilter::KINDS.into_iter().filter(move |(_, kind)| self.has(*kind));
        Some(named.map(|(name, _)| name))
    }

    fn has(self, kind: PushFilter) -> bool {
        self.kinds.zip(kind.kinds).is_some_and(|(own, kind)| own & kind != 0)
    }

    /// Whether it names no kind.
    fn is_open(self) -> bool {
        self.kinds.is_none_or(|kinds| kinds == 0)
    }

    /// Whether a status is to be posted.
    pub fn takes_status(self, state: TaskState) -> bool {
        let is_final = state.is_terminal() || state.is_interrupted();
        self.is_open() || self.has(PushFilter::STATUS) || is_final && self.has(PushFilter::FINAL)
    }

    /// Whether there are statuses that are to be posted.
    pub(crate) fn takes_any_status(self) -> bool {
        self.takes_status(TaskState::Completed)
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
    pub(crate) fn bits(self) -> u8 {
        let coalesce = match self.coalesce {
            None => 0,
            Some(false) => SAYS_COALESCE_BIT,
            Some(true) => SAYS_COALESCE_BIT | COALESCE_BIT,
        };
        self.kinds.map_or(0, |kinds| SAYS_KINDS_BIT | kinds) | coalesce
    }

    /// What [`PushFilter::bits`] gave.
    pub(crate) fn of_bits(bits: u8) -> PushFilter {
        let has = |bit| bits & bit != 0;
        PushFilter {
            kinds: has(SAYS_KINDS_BIT).then_some(bits & (COALESCE_BIT - 1)),
            coalesce: has(SAYS_COALESCE_BIT).then_some(has(COALESCE_BIT)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
            (PushFilter::default(), [true, true, true]),
            (PushFilter::default().coalesced(false), [true, true, true]),
            (PushFilter::STATUS, [true, true, true]),
            (PushFilter::FINAL, [false, true, true]),
            (PushFilter::ARTIFACTS, [false, false, false]),
            (PushFilter::ARTIFACTS.with(PushFilter::FINAL), [false, true, true]),
        ] {
            assert_eq!([&working, &done, &asks].map(|event| filter.takes(event)), takes);
            assert_eq!(PushFilter::of_bits(filter.bits()), filter);
        }
        let named = PushFilter::FINAL.with(PushFilter::STATUS).coalesced(true);
        assert!(named.coalesces() == Some(true) && PushFilter::of_bits(named.bits()) == named);
        assert_eq!(named.kinds().unwrap().collect::<Vec<_>>(), ["status", "final"]);
    }

    #[test]
    fn what_one_leaves_open_another_may_say() {
        let usual = PushFilter::STATUS.coalesced(true);
        for (own, both) in [
            (PushFilter::default(), usual),
            (PushFilter::ALL, PushFilter::ALL.coalesced(true)),
            (PushFilter::FINAL, PushFilter::FINAL.coalesced(true)),
            (PushFilter::default().coalesced(false), PushFilter::STATUS.coalesced(false)),
            (PushFilter::FINAL.coalesced(false), PushFilter::FINAL.coalesced(false)),
        ] {
            assert_eq!(own.or(usual), both);
        }
        assert!(PushFilter::default().kinds().is_none());
        assert_eq!(PushFilter::ALL.kinds().unwrap().count(), 0);
    }
}
