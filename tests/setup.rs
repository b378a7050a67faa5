//! A setup that contradicts itself is refused before anything is made of it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use peregrine::{
    agent::echo::Echo,
    engine::{BuildError, Setup},
    limits::Limits,
};

/// A change of the limits in code.
type Change = fn(&mut Limits);

#[test]
fn a_host_that_is_let_in_has_no_port() {
    let check = |host: &str| {
        let agents: Vec<(_, Arc<dyn peregrine::agent::Agent>)> =
            vec![(Echo::profile(), Arc::new(Echo))];
        let allow_hosts = vec!["a.example".to_owned(), host.to_owned()];
        Setup { agents, allow_hosts, ..Setup::default() }.check()
    };
    for host in ["localhost", "*", "10.0.0.1", "::1", "[::1]"] {
        assert_eq!(check(host), Ok(()), "{host}");
    }
    for host in ["", "a.example:80", "https://a.example", "u@a.example", "*.example"] {
        let error = check(host).unwrap_err();
        assert_eq!(error, BuildError::Host(host.to_owned()));
        assert!(error.to_string().contains("without a port"));
    }
}

#[test]
fn limits_that_are_set_in_code_are_checked_as_those_by_name() {
    let check = |change: Change| {
        let mut setup =
            Setup { agents: vec![(Echo::profile(), Arc::new(Echo))], ..Setup::default() };
        change(&mut setup.limits);
        setup.check()
    };
    assert_eq!(check(|_| ()), Ok(()));
    assert_eq!(check(|limits| limits.identifier_bytes_max = 65_535), Ok(()));
    let wrong: [(&str, Change); 6] = [
        ("tasks_max", |limits| limits.tasks_max = 0),
        ("identifier_bytes_max", |limits| limits.identifier_bytes_max = 65_536),
        ("task_bytes_max", |limits| limits.task_bytes_max = usize::MAX),
        ("body_bytes_max", |limits| limits.body_bytes_max = 1 << 31),
        ("drain_ms", |limits| limits.drain_ms = u64::MAX),
        ("event_ring_max", |limits| limits.event_ring_max = 0),
    ];
    for (name, change) in wrong {
        let error = check(change).unwrap_err();
        assert_eq!(error, BuildError::Limit(name));
        assert!(error.to_string().contains(name));
    }
}
