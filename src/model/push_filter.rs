//! Filters of a webhook's events: the extension [`PUSH_EVENTS`](super::Extension::PUSH_EVENTS).

use super::{TaskEvent, TaskState};

/// Bits above the kinds: coalesce, and whether `coalesce` and `events` are given.
const COALESCE_BIT: u8 = 8;
const HAS_COALESCE_BIT: u8 = 16;
const HAS_KINDS_BIT: u8 = 32;

/// Which events a webhook gets, and whether they are coalesced. The server decides a setting that
/// is unset; by default both are unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PushFilter {
    /// A bit for each selected kind; no bit: all kinds.
    kinds: Option<u8>,
    coalesce: Option<bool>,
}

impl PushFilter {
    /// All events.
    pub const ALL: PushFilter = PushFilter::kind(0);
    /// Each status.
    pub const STATUS: PushFilter = PushFilter::kind(1);
    /// Artifacts, and their chunks.
    pub const ARTIFACTS: PushFilter = PushFilter::kind(2);
    /// A status that ends the task, or requests input.
    pub const FINAL: PushFilter = PushFilter::kind(4);

    /// The kinds with their wire names.
    const KINDS: [(&'static str, PushFilter); 3] = [
        ("status", PushFilter::STATUS),
        ("artifacts", PushFilter::ARTIFACTS),
        ("final", PushFilter::FINAL),
    ];

    const fn kind(kinds: u8) -> PushFilter {
        PushFilter { kinds: Some(kinds), coalesce: None }
    }

    /// The kind with this wire name: `status`, `artifacts` or `final`.
    pub fn named(name: &str) -> Option<PushFilter> {
        PushFilter::KINDS.into_iter().find(|(kind, _)| *kind == name).map(|(_, filter)| filter)
    }

    /// This filter with the kinds of both filters.
    #[must_use]
    pub fn with(self, other: PushFilter) -> PushFilter {
        let kinds = self.kinds.zip(other.kinds).map(|(own, others)| own | others);
        PushFilter { kinds: kinds.or(self.kinds).or(other.kinds), ..self.or(other) }
    }

    /// This filter, with `other` for unset parts.
    #[must_use]
    pub fn or(self, other: PushFilter) -> PushFilter {
        let PushFilter { kinds, coalesce } = other;
        PushFilter { kinds: self.kinds.or(kinds), coalesce: self.coalesce.or(coalesce) }
    }

    /// This filter with coalescing set: several pending events become one delivery of the current
    /// task.
    #[must_use]
    pub const fn coalesced(self, coalesce: bool) -> PushFilter {
        PushFilter { coalesce: Some(coalesce), ..self }
    }

    /// Whether several pending events become one delivery; `None`: unset.
    pub const fn coalesces(self) -> Option<bool> {
        self.coalesce
    }

    /// The selected kinds by their wire names; `None`: unset.
    pub fn kinds(self) -> Option<impl Iterator<Item = &'static str>> {
        self.kinds?;
        let named = PushFilter::KINDS.into_iter().filter(move |(_, kind)| self.has(*kind));
        Some(named.map(|(name, _)| name))
    }

    fn has(self, kind: PushFilter) -> bool {
        self.kinds.zip(kind.kinds).is_some_and(|(own, kind)| own & kind != 0)
    }

    /// Whether it selects no kind.
    fn is_open(self) -> bool {
        self.kinds.is_none_or(|kinds| kinds == 0)
    }

    /// Whether a status is delivered.
    pub fn takes_status(self, state: TaskState) -> bool {
        let is_final = state.is_terminal() || state.is_interrupted();
        self.is_open() || self.has(PushFilter::STATUS) || is_final && self.has(PushFilter::FINAL)
    }

    /// Whether any status is delivered.
    pub(crate) fn takes_any_status(self) -> bool {
        self.takes_status(TaskState::Completed)
    }

    /// Whether an event is delivered.
    pub fn takes(self, event: &TaskEvent<'_>) -> bool {
        match event {
            TaskEvent::Status { state, .. } => self.takes_status(*state),
            TaskEvent::Artifact { .. } => self.is_open() || self.has(PushFilter::ARTIFACTS),
            TaskEvent::UserMessage { .. } => false,
        }
    }

    /// The filter as one byte, the form in configurations.
    pub(crate) fn bits(self) -> u8 {
        let coalesce = match self.coalesce {
            None => 0,
            Some(false) => HAS_COALESCE_BIT,
            Some(true) => HAS_COALESCE_BIT | COALESCE_BIT,
        };
        self.kinds.map_or(0, |kinds| HAS_KINDS_BIT | kinds) | coalesce
    }

    /// Reads [`PushFilter::bits`].
    pub(crate) fn of_bits(bits: u8) -> PushFilter {
        let has = |bit| bits & bit != 0;
        PushFilter {
            kinds: has(HAS_KINDS_BIT).then_some(bits & (COALESCE_BIT - 1)),
            coalesce: has(HAS_COALESCE_BIT).then_some(has(COALESCE_BIT)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn filter_accepts_its_kinds_or_all_if_it_has_none() {
        let status = |state| TaskEvent::Status { state, at_ms: 0, message: None, metadata: None };
        let (working, done) = (status(TaskState::Working), status(TaskState::Completed));
        let input_required = status(TaskState::InputRequired);
        for (filter, expected) in [
            (PushFilter::ALL, [true, true, true]),
            (PushFilter::ALL.coalesced(true), [true, true, true]),
            (PushFilter::default(), [true, true, true]),
            (PushFilter::default().coalesced(false), [true, true, true]),
            (PushFilter::STATUS, [true, true, true]),
            (PushFilter::FINAL, [false, true, true]),
            (PushFilter::ARTIFACTS, [false, false, false]),
            (PushFilter::ARTIFACTS.with(PushFilter::FINAL), [false, true, true]),
        ] {
            let delivered = [&working, &done, &input_required].map(|event| filter.takes(event));
            assert_eq!(delivered, expected);
            assert_eq!(PushFilter::of_bits(filter.bits()), filter);
        }
        let named = PushFilter::FINAL.with(PushFilter::STATUS).coalesced(true);
        assert!(named.coalesces() == Some(true) && PushFilter::of_bits(named.bits()) == named);
        assert_eq!(named.kinds().unwrap().collect::<Vec<_>>(), ["status", "final"]);
    }

    #[test]
    fn filter_or_fills_only_unset_options() {
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
