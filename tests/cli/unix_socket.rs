//! Agents on a Unix socket.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::{UnixDatagram, UnixListener, UnixStream},
    },
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
fn server_serves_and_removes_its_unix_socket() {
    let user = User::new();
    let path = user.path("work/a.sock");
    // A socket file that a stopped server left is replaced.
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

#[test]
fn banner_try_command_works_over_the_unix_socket() {
    let user = User::new();
    let mut server = user.command(&["serve", "--listen", "unix:a.sock"]).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    let call = lines.find_map(|line| Some(line.trim().strip_prefix("try ")?.to_owned())).unwrap();
    assert!(lines.any(|line| line.contains("--limit")));
    let output = user.command_of("sh", &["-c", &call]).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("TASK_STATE_COMPLETED"), "{call}: {stdout}");
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A listener that is not a server of ours, or a file that is not a socket, is not a leftover
/// socket.
#[test]
fn a_path_in_use_is_refused_and_unchanged() {
    let user = User::new();
    let path = user.path("work/a.sock");
    let refused = |what: &str| {
        let output = user.run(&["serve", "--listen", "unix:a.sock"]);
        assert!(output.code == Some(1) && output.err.lines().count() == 1, "{what}: {output:?}");
        assert!(fs::symlink_metadata(&path).is_ok(), "{what} is gone");
        fs::remove_file(&path).unwrap();
    };
    let datagrams = UnixDatagram::bind(&path).unwrap();
    refused("a socket for datagrams");
    drop(datagrams);
    // A listening socket that accepts nothing.
    let busy = UnixListener::bind(&path).unwrap();
    let mut waiting = Vec::new();
    let connect = || {
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&socket2::SockAddr::unix(&path)?).map(|()| socket)
    };
    while let Ok(one) = connect() {
        waiting.push(one);
        assert!(waiting.len() < 100_000);
    }
    refused("a busy socket");
    drop(busy);
    fs::write(user.path("work/other"), "kept").unwrap();
    fs::write(&path, "kept").unwrap();
    refused("a file");
    drop(UnixListener::bind(user.path("work/real.sock")).unwrap());
    for target in ["other", "none", "real.sock"] {
        symlink(user.path(&format!("work/{target}")), &path).unwrap();
        refused(target);
    }
    assert_eq!(fs::read_to_string(user.path("work/other")).unwrap(), "kept");
}

/// A socket that replaced it belongs to another server.
#[test]
fn shutdown_does_not_remove_another_servers_socket() {
    let user = User::new();
    let path = user.path("work/a.sock");
    let mut server = serve(&user);
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    let id = server.id().to_string();
    user.command_of("kill", &["-TERM", &id]).status().unwrap();
    assert!(server.wait().unwrap().success());
    assert!(UnixStream::connect(&path).is_ok());
    drop(other);
}
