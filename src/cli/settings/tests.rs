//! The precedence of sources, with files in a temporary folder.

use std::{collections::BTreeMap, fs, path::PathBuf};

use super::*;
use crate::cli::command::{CommandLine, parse};

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("peregrine-settings-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("home/.config/a2a-cli")).unwrap();
        fs::create_dir_all(path.join("project/inner")).unwrap();
        Folder(path)
    }

    fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.0.join(file);
        fs::write(&path, text).unwrap();
        path
    }

    fn resolve(&self, words: &str, variables: &[(&str, &str)]) -> Result<Settings, CommandFailure> {
        let words = words.split_whitespace().map(Into::into).collect();
        let Ok(CommandLine::Run(root)) = parse(words) else { panic!("no command") };
        let (_, group) = root.subcommand().unwrap();
        let leaf = group.subcommand().map_or(group, |(_, leaf)| leaf);
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        let (folder, home) = (self.0.join("project/inner"), Some(self.0.join("home")));
        Settings::resolve(&[leaf, &root], &Surroundings { variable: &variable, folder, home })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn sources_have_a_fixed_precedence() {
    let folder = Folder::new("order");
    let show = |words: &str, variables: &[(&str, &str)]| {
        let settings = folder.resolve(words, variables).unwrap();
        let text = settings.text("poll-interval").unwrap_or_default().to_owned();
        (text, settings.source("poll-interval").clone())
    };
    let name = "A2ACLI_POLL_INTERVAL";
    assert_eq!(show("config show", &[]), ("2s".to_owned(), SettingSource::BuiltIn));
    let global = folder.write("home/.config/a2a-cli/.env", &format!("{name}=3s\n"));
    assert_eq!(show("config show", &[]), ("3s".to_owned(), SettingSource::Global(global)));
    let local = folder.write("project/.env", &format!("{name}=4s\n"));
    assert_eq!(show("config show", &[]), ("4s".to_owned(), SettingSource::Local(local)));
    let near = folder.write("project/inner/.env", "OTHER=1\n");
    assert_eq!(show("config show", &[]).0, "3s");
    fs::remove_file(near).unwrap();
    let named = folder.write("project/inner/other.env", &format!("{name}=5s\n"));
    let selected = show("config show --config other.env", &[]);
    assert_eq!(selected, ("5s".to_owned(), SettingSource::Local(named)));
    assert_eq!(show("config show", &[("A2ACLI_CONFIG", "other.env")]).0, "5s");
    let environment = show("config show --config other.env", &[(name, "6s")]);
    assert_eq!(environment, ("6s".to_owned(), SettingSource::Environment));
    let flag = show("config show --poll-interval 7s", &[(name, "6s")]);
    assert_eq!(flag, ("7s".to_owned(), SettingSource::Flag));
    // A flag may also precede the command, and a flag of the command overrides it.
    assert_eq!(show("--poll-interval 8s config show", &[(name, "6s")]).0, "8s");
    assert_eq!(show("--poll-interval 8s config show --poll-interval 9s", &[]).0, "9s");
}

#[test]
fn stream_is_set_by_flag_only() {
    let folder = Folder::new("stream");
    folder.write("project/.env", "A2ACLI_STREAM=true\nA2ACLI_CONFIG=x\nA2ACLI_NONE=1\n");
    let settings = folder.resolve("config show", &[("A2ACLI_STREAM", "true")]).unwrap();
    assert_eq!(settings.is_on("stream"), Ok(false));
    assert_eq!(settings.source("stream"), &SettingSource::BuiltIn);
    let warnings = settings.warnings.join("\n");
    assert!(warnings.contains("A2ACLI_STREAM has no effect in a file"), "{warnings}");
    assert!(
        warnings.contains("A2ACLI_CONFIG has no effect") && warnings.contains("A2ACLI_NONE is no")
    );
    assert_eq!(folder.resolve("config show --stream", &[]).unwrap().is_on("stream"), Ok(true));
}

#[test]
fn invalid_setting_error_names_its_source() {
    let folder = Folder::new("wrong");
    let path = folder.write("project/.env", "A2ACLI_TIMEOUT=soon\n");
    let settings = folder.resolve("config show", &[("A2ACLI_ASYNC", "maybe")]).unwrap();
    let message = settings.time("timeout").unwrap_err().message;
    assert!(message.contains(&format!("A2ACLI_TIMEOUT in {}", path.display())), "{message}");
    let message = settings.is_on("async").unwrap_err().message;
    assert!(message.contains("A2ACLI_ASYNC in the environment: \"maybe\""), "{message}");
    let settings = folder.resolve("config show --transport websockt", &[]).unwrap();
    let message = settings.transports().unwrap_err().message;
    assert!(
        message.contains("--transport") && message.contains("did you mean websocket?"),
        "{message}"
    );
    folder.write("project/.env", "\nA2ACLI_TIMEOUT\n");
    let failure = folder.resolve("config show", &[]).unwrap_err();
    assert!(failure.message.contains(".env:2: "), "{failure:?}");
    let failure = folder.resolve("config show --config none.env", &[]).unwrap_err();
    assert!(failure.message.contains("cannot read") && failure.code.exit() == 2);
}

#[test]
fn wait_flag_overrides_async_from_environment() {
    let folder = Folder::new("wait");
    let waits = |words: &str, variables: &[(&str, &str)]| {
        folder.resolve(words, variables).unwrap().waits().map_err(|failure| failure.message)
    };
    let variables = &[("A2ACLI_ASYNC", "true")][..];
    assert_eq!(waits("send x", &[]), Ok(true));
    assert_eq!(waits("send x --async", &[]), Ok(false));
    assert_eq!(waits("send x --no-wait", &[]), Ok(false));
    assert_eq!(waits("send x --return-immediately", &[]), Ok(false));
    assert_eq!(waits("send x", variables), Ok(false));
    assert_eq!(waits("send x --wait", variables), Ok(true));
    assert_eq!(waits("send x --watch", variables), Ok(true));
    assert_eq!(waits("send x --async=false", variables), Ok(true));
    assert!(waits("send x --async --wait", &[]).is_err());
}

#[test]
fn transport_lists_keep_their_order() {
    let folder = Folder::new("lists");
    let list = |words: &str, variables: &[(&str, &str)]| {
        folder.resolve(words, variables).unwrap().transports().unwrap()
    };
    assert_eq!(list("send x --transport GRPC --transport rest", &[]), ["grpc", "http+json"]);
    let variables = &[("A2ACLI_TRANSPORT", "ws, jsonrpc")][..];
    assert_eq!(list("send x", variables), ["websocket", "jsonrpc"]);
    assert_eq!(list("send x --transport grpc", variables), ["grpc"]);
}

#[test]
fn config_show_contains_no_secrets() {
    let folder = Folder::new("secrets");
    let path = folder
        .write("project/.env", "A2ACLI_BEARER=hidden-1\nA2ACLI_SVC_PARAM=\"x-k: hidden-2\"\n");
    let words = "config show --api-key hidden-3 --client-secret hidden-4 --basic me:hidden-5";
    let settings = folder.resolve(words, &[]).unwrap();
    for format in [OutputFormat::Text, OutputFormat::Json] {
        let shown = show(&settings, format);
        assert!(!shown.contains("hidden"), "{shown}");
        assert!(shown.contains("x-k") && shown.contains(&path.display().to_string()), "{shown}");
    }
    let mut secrets: Vec<&str> = settings.secrets().collect();
    secrets.sort_unstable();
    // A server may repeat a password without its name.
    let all = ["hidden-1", "hidden-2", "hidden-3", "hidden-4", "hidden-5", "me:hidden-5"];
    assert_eq!(secrets, all);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert!(settings.warnings.iter().any(|line| line.contains("chmod 600")));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(folder.resolve(words, &[]).unwrap().warnings.is_empty());
    }
}

#[test]
fn service_parameters_are_name_value_pairs() {
    let folder = Folder::new("pairs");
    let settings = folder.resolve("send x --svc-param a:b:c --svc-param=d:", &[]).unwrap();
    assert_eq!(settings.service_parameters(), Ok(vec![("a", "b:c"), ("d", "")]));
    for bad in ["a", ":b", "a\u{e9}:b"] {
        let settings = folder.resolve(&format!("send x --svc-param {bad}"), &[]).unwrap();
        assert!(settings.service_parameters().is_err(), "{bad}");
    }
}
