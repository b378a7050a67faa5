//! Unknown filters of ListTasks: each name is reported to the observer once.

use std::{
    borrow::Cow,
    sync::{Mutex, PoisonError},
};

use crate::{binding::CallContext, dialect::is_known_filter, json::Value};

/// Maximum number of reported names, since a client may invent any number.
const NAMES_MAX: usize = 16;
/// Bytes of a reported name.
const NAME_BYTES_MAX: usize = 64;

/// The names that were reported.
#[derive(Default)]
pub struct IgnoredFilters(Mutex<Vec<Box<str>>>);

impl IgnoredFilters {
    /// Whether a name is valid and was not reported before; if so, records it.
    fn is_new(&self, name: &str) -> bool {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return false;
        }
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES_MAX || names.iter().any(|reported| **reported == *name) {
            return false;
        }
        names.push(name.into());
        true
    }
}

impl CallContext<'_> {
    /// Reports params that ListTasks does not know.
    #[cold]
    pub(super) fn note_filters(&self, params: Option<Value<'_>>) {
        let members = params.into_iter().flat_map(|params| params.members());
        let non_null = members.filter(|(_, value)| !value.is_null());
        non_null.for_each(|(key, _)| self.note_filter(String::from_utf8_lossy(&key.text())));
    }

    /// Reports this parameter if ListTasks does not know it.
    #[cold]
    pub(super) fn note_filter(&self, name: Cow<'_, str>) {
        if let Some(observer) = &self.config.observer
            && !is_known_filter(&name)
            && self.config.ignored_filters.is_new(&name)
        {
            observer.filter_ignored(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ignored_filter_is_reported_once_up_to_a_limit() {
        let names = IgnoredFilters::default();
        assert!(names.is_new("lastUpdatedAfter") && !names.is_new("lastUpdatedAfter"));
        for name in ["", "a b", "a\n", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(!names.is_new(name), "{name}");
        }
        let reported = (0..100).filter(|number| names.is_new(&format!("n{number}"))).count();
        assert_eq!(reported, NAMES_MAX - 1);
    }
}
