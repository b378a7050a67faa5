//! A setup that contradicts itself is refused before the engine is built.

use std::sync::Arc;

use peregrine::{
    agent::echo::Echo,
    binding::interfaces::{Binding, Interface, InterfaceError},
    engine::{BuildError, Mount, Setup},
    limits::Limits,
};

/// A change of the limits in code.
type Change = fn(&mut Limits);

#[test]
fn allow_hosts_rejects_ports_urls_and_wildcard_domains() {
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
fn limits_set_in_code_are_validated() {
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

fn echo() -> Setup {
    Setup { agents: vec![(Echo::profile(), Arc::new(Echo))], ..Setup::default() }
}

#[test]
fn invalid_public_url_is_rejected() {
    for (url, is_good) in [
        ("https://a.example/base/", true),
        ("http://[::1]:8080", true),
        ("a.example", false),
        ("ftp://a.example", false),
        ("https://a.example/?x=1", false),
        ("https://user:word@a.example/", false),
        ("https://a.example/\"", false),
        ("", false),
    ] {
        let setup = Setup { public_url: Some(url.to_owned()), ..echo() };
        let wrong = Err(BuildError::PublicUrl(url.to_owned()));
        assert_eq!(setup.check(), if is_good { Ok(()) } else { wrong });
    }
    let text = BuildError::PublicUrl("https://user:word@a.example/".to_owned()).to_string();
    assert!(text.ends_with("without user information, query and fragment"), "{text}");
}

#[test]
fn duplicate_mount_path_is_rejected() {
    let check = |paths: &[&str]| {
        let mount = |path: &&str| Mount {
            path: (*path).to_owned(),
            dialect: "langsmith".to_owned(),
            agent: None,
        };
        Setup { mounts: paths.iter().map(mount).collect(), ..echo() }.check()
    };
    assert_eq!(check(&["/", "/x", "/x/y", "/X", "/agents/echo"]), Ok(()));
    for (paths, again) in
        [(["/x", "/x"], "/x"), (["/x", "/x/"], "/x/"), (["/x//", "/x"], "/x"), (["/", "//"], "//")]
    {
        let error = check(&paths).unwrap_err();
        assert_eq!(error, BuildError::SameMount(again.to_owned()));
        assert!(error.to_string().contains("two mounts"));
    }
}

#[test]
fn empty_duplicate_or_unbuilt_interfaces_are_rejected() {
    let check = |interfaces: Vec<Interface>| {
        let agents: Vec<(_, Arc<dyn peregrine::agent::Agent>)> =
            vec![(Echo::profile(), Arc::new(Echo))];
        Setup { agents, interfaces, ..Setup::default() }.check()
    };
    let rpc = || Interface::of(Binding::JsonRpc);
    assert_eq!(check(vec![rpc(), Interface::of(Binding::WebSocket)]), Ok(()));
    assert_eq!(check(Vec::new()), Err(BuildError::Interfaces(InterfaceError::None)));
    let twice = InterfaceError::Twice(Binding::JsonRpc);
    assert_eq!(check(vec![rpc(), rpc()]), Err(BuildError::Interfaces(twice)));
    if cfg!(not(feature = "grpc")) {
        let error = InterfaceError::NotBuilt(Binding::Grpc);
        let grpc = Interface::of(Binding::Grpc);
        assert_eq!(check(vec![grpc]), Err(BuildError::Interfaces(error)));
    }
}
