//! Settings as a user makes them: files, the environment, `config show`.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::run::User;

#[test]
fn config_show_names_the_source_of_each_value() {
    let user = User::new().with("A2ACLI_TIMEOUT", "30s");
    user.write("home/.config/a2a-cli/.env", "A2ACLI_VERBOSE=true\nA2ACLI_TRANSPORT=grpc\n");
    let local = user.write("work/.env", "# mine\nexport A2ACLI_TRANSPORT=rest,grpc\nOTHER=x\n");
    let output = user.ok(&["config", "show", "-a", "localhost"]);
    assert!(output.err.is_empty(), "{output:?}");
    assert_eq!(output.field("agent-card"), "localhost (flag --agent-card)");
    assert_eq!(output.field("timeout"), "30s (environment A2ACLI_TIMEOUT)");
    assert_eq!(output.field("transport"), format!("rest, grpc ({})", local.display()));
    assert!(output.field("verbose").starts_with("true (") && output.out.contains("a2a-cli/.env)"));
    assert_eq!(output.field("output"), "text (built-in)");
    // An explicit file replaces only the local one.
    let other = user.write("other.env", "A2ACLI_TRANSPORT=websocket\n");
    let shown = user.json(&["config", "show", "--config", other.to_str().unwrap()]);
    assert_eq!(shown["transport"]["value"], serde_json::json!(["websocket"]));
    assert_eq!(shown["transport"]["source"], other.display().to_string());
    assert_eq!(shown["verbose"]["value"], "true");
    assert_eq!(shown["stream"]["source"], "built-in");
}

#[test]
fn config_show_lists_stored_tokens_and_cached_cards() {
    let (_server, url) = crate::agent::echo(&[]);
    let user = User::of(&url);
    assert_eq!(user.json(&["config", "show"])["kept-cards"]["value"], serde_json::json!([]));
    let file = "home/.config/a2a-cli/tokens.json";
    let tokens = user.write(file, "{\"https://a.example\":{\"access_token\":\"hidden\"}}");
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    user.ok(&["send", "hello"]);
    let output = user.ok(&["config", "show"]);
    let path = tokens.display().to_string();
    assert_eq!(output.field("kept-tokens"), format!("https://a.example ({path})"));
    let card = format!("{url}/.well-known/agent-card.json (");
    assert!(output.field("kept-cards").starts_with(&card), "{output:?}");
    assert!(!output.out.contains("hidden"), "{output:?}");
}

#[test]
fn local_env_file_is_found_from_a_subfolder() {
    let user = User::new();
    user.write("work/.env", "A2ACLI_OUTPUT=json\n");
    let mut command = user.command(&["config", "show"]);
    let output = command.current_dir(user.path("work/inner")).output().unwrap();
    assert!(output.stdout.starts_with(b"{"), "{output:?}");
}

#[test]
fn broken_env_file_error_names_file_and_line() {
    let user = User::new();
    user.write("work/.env", "X=1\nA2ACLI_BEARER=\"open\n");
    let error = user.failure(&["config", "show"], "A2ACLI_ERR_USAGE", 2);
    assert!(error["message"].as_str().unwrap().contains(".env:2: A2ACLI_BEARER"), "{error}");
    let error = user.failure(&["config", "show", "--config", "none"], "A2ACLI_ERR_USAGE", 2);
    assert!(error["message"].as_str().unwrap().contains("cannot read"), "{error}");
}

#[test]
fn config_show_masks_secrets_and_warns_of_file_mode() {
    let user = User::new().with("A2ACLI_API_KEY", "hidden-1");
    let file = user.write("work/.env", "A2ACLI_BEARER=hidden-2\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let output = user.ok(&["config", "show", "--svc-param", "x-key:hidden-3"]);
    assert!(!output.out.contains("hidden") && !output.err.contains("hidden"), "{output:?}");
    assert!(output.err.contains("chmod 600"), "{output:?}");
    assert_eq!(output.field("svc-param"), "x-key:*** (flag --svc-param)");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(user.ok(&["config", "show"]).err.is_empty());
}
