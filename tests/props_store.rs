//! Property test of the task store; the property lives in `props/store.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "props/store.rs"]
mod store;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_its_naive_twin(bytes in prop::collection::vec(any::<u8>(), 8..1500)) {
        store::the_store_is_its_naive_twin(&bytes);
    }
}
