//! Agents on a socket that has a path.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, net::UnixListener},
    process::Child,
};

use crate::run::User;

/// A server on `work/a.sock` that is ready.
fn serve(user: &User) -> Child {
    let words = ["serve", "--listen", "unix:a.sock", "--workers", "2"];
    let mut child = user.command(&words).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("also    unix:a.sock")));
    child
}

#[test]
fn agents_are_served_on_a_socket_with_a_path() {
    let user = User::new();
    let path = user.path("work/a.sock");
    // One that a server left behind is replaced.
    drop(UnixListener::bind(&path).unwrap());
    let mut server = serve(&user);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let send = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":
        {"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}"#;
    let curl = ["-s", "--unix-socket", "a.sock", "http://localhost/", "-d", send, "-H"];
    let fields = ["Content-Type: application/json", "-H", "A2A-Version: 1.0"];
    let run = || {
        let output = user.command_of("curl", &[&curl[..], &fields].concat()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run().contains("TASK_STATE_COMPLETED"), "{}", run());
    // A live one is refused, and stays.
    let other = user.run(&["serve", "--listen", "unix:a.sock"]);
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.err.contains("cannot listen on unix:a.sock"), "{other:?}");
    assert!(run().contains("TASK_STATE_COMPLETED"));
    let id = server.id().to_string();
    user.command_of("kill", &["-TERM", &id]).status().unwrap();
    assert!(server.wait().unwrap().success());
    assert!(!path.exists());
}
