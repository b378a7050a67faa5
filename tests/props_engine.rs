//! The properties of a connection, with seeds; the properties live in `props/engine.rs`.

#![cfg(feature = "script")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "props/engine.rs"]
mod engine;

use proptest::{
    prelude::*,
    test_runner::{TestError, TestRunner},
};

fn dice() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

/// Bytes, most of them such as requests are made of.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let likely = prop::sample::select(&b"GETPOST /:\r\n\r\n HTTP/1.1{}[]\",0123456789abcdef;"[..]);
    prop::collection::vec(prop_oneof![4 => likely, 1 => any::<u8>()], 0..600)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whole_is_split_is_bytewise(dice in dice()) {
        engine::whole_is_split_is_bytewise(&dice);
    }

    #[test]
    fn a_slow_reader_gets_the_same(dice in dice()) {
        engine::a_slow_reader_gets_the_same(&dice);
    }

    #[test]
    fn any_bytes_are_survived(bytes in bytes()) {
        engine::any_bytes_are_survived(&bytes);
    }

    #[test]
    fn silence_ends_every_connection(bytes in bytes(), dice in dice()) {
        engine::silence_ends_every_connection(&bytes);
        engine::silence_ends_every_connection(&dice);
    }

    #[test]
    fn every_limit_holds(dice in dice()) {
        engine::every_limit_holds(&dice);
    }
}

/// A runner that cannot fail proves nothing: wrong properties must be found out, and shrunk.
#[test]
fn the_canaries_die() {
    for wrong in [engine::every_request_is_answered_with_200, engine::no_answer_comes_twice] {
        let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
        let outcome = TestRunner::new(config).run(&dice(), |dice| {
            wrong(&dice);
            Ok(())
        });
        let Err(TestError::Fail(_, dice)) = outcome else { panic!("a canary lives: {outcome:?}") };
        let again = std::panic::catch_unwind(|| wrong(&dice));
        assert!(again.is_err(), "the smallest input fails, too");
    }
}
