//! The upstream ids of a relayed task, stored with the local task.

use crate::model::{
    RawText,
    pack::{PackedFields, Packer},
};

const TASK_ID: u8 = 1;
const CONTEXT_ID: u8 = 2;
const UPSTREAM: u8 = 3;

/// Bytes of a field before its value: its tag and its length.
pub(super) const FIELD_BYTES: usize = 5;

/// The ids of a relayed task at its upstream agent, in canonical raw text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamIds {
    packed: Vec<u8>,
}

impl UpstreamIds {
    /// `upstream`: the URL by which the agent is configured.
    pub fn new(upstream: &str, task_id: RawText<'_>, context_id: RawText<'_>) -> UpstreamIds {
        let bytes = task_id.raw().len() + context_id.raw().len() + upstream.len();
        let mut packed = Vec::with_capacity(bytes + 3 * FIELD_BYTES);
        let mut packer = Packer(&mut packed);
        packer.put(TASK_ID, task_id.raw());
        packer.put(CONTEXT_ID, context_id.raw());
        packer.put(UPSTREAM, upstream.as_bytes());
        UpstreamIds { packed }
    }

    /// Reads the bytes from [`UpstreamIds::into_packed`]; `None`: they contain no task id, or the
    /// id of another upstream agent that was configured before.
    pub fn read(packed: Vec<u8>, upstream: &str) -> Option<UpstreamIds> {
        let ids = UpstreamIds { packed };
        let is_own = ids.text(UPSTREAM).raw() == upstream.as_bytes();
        (is_own && !ids.task_id().is_empty()).then_some(ids)
    }

    /// The bytes to store with the task.
    pub fn into_packed(self) -> Box<[u8]> {
        self.packed.into()
    }

    pub fn task_id(&self) -> RawText<'_> {
        self.text(TASK_ID)
    }

    /// Empty if the upstream agent names no context.
    pub fn context_id(&self) -> RawText<'_> {
        self.text(CONTEXT_ID)
    }

    fn text(&self, tag: u8) -> RawText<'_> {
        RawText::known(PackedFields(&self.packed).first(tag).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_ids_round_trip_for_same_upstream() {
        let (task_id, context_id) = (RawText::known(b"task"), RawText::known(b"context"));
        let ids = UpstreamIds::new("http://a", task_id, context_id);
        let packed = ids.clone().into_packed().into_vec();
        assert_eq!(UpstreamIds::read(packed.clone(), "http://a"), Some(ids.clone()));
        assert_eq!((ids.task_id(), ids.context_id()), (task_id, context_id));
        for (packed, upstream) in [(packed, "http://b"), (Vec::new(), ""), (Vec::new(), "http://a")]
        {
            assert_eq!(UpstreamIds::read(packed, upstream), None);
        }
    }
}
