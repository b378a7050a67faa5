//! `task push-config`: the webhooks of a task.

use peregrine::{
    client::{Answer, Binding, HttpOrigin, Transport, card::ChosenInterface},
    model::{Generation, PushConfig, PushConfigBuf, PushFilter, uuid},
};

use super::{
    super::{failure::CommandFailure, print, settings::OutputFormat, text::TextOutput},
    CalledAgent, Invocation,
    explain::failure,
    invocation::{flag, quoted},
};

/// Makes an agent post the events of a task to a URL.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn create(agent: &CalledAgent, on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let mut config = wanted(on)?;
    if on.flag("id").is_none() && needs_id(&agent.client.interface()) {
        let id = uuid(agent.client.transport().random());
        config = config.id(&*String::from_utf8_lossy(&id));
    }
    shown(on, agent.client.set_push_config(&config).await)
}

/// In the proto of 0.3 the client must name a configuration; otherwise the agent may name it.
fn needs_id(interface: &ChosenInterface) -> bool {
    let is_proto = match interface.binding {
        Binding::HttpJson | Binding::Grpc => true,
        Binding::JsonRpc | Binding::WebSocket => false,
    };
    is_proto && interface.generation == Generation::V03
}

/// The configuration in the flags.
///
/// # Errors
/// A [`CommandFailure`] of usage.
pub fn wanted(on: &Invocation<'_>) -> Result<PushConfigBuf, CommandFailure> {
    let config = receiver(on, "")?.unwrap_or_else(|| PushConfigBuf::new(""));
    let mut config = config.task_id(on.words[0].as_str());
    if let Some(id) = on.flag("id") {
        config = config.id(id);
    }
    Ok(match filter(on)? {
        Some(filter) => config.filter(filter),
        None => config,
    })
}

/// The URL of the receiver, and the credentials that prove the origin of posts. `before`: the
/// prefix of the flags.
///
/// # Errors
/// A [`CommandFailure`] of usage.
pub fn receiver(
    on: &Invocation<'_>,
    before: &str,
) -> Result<Option<PushConfigBuf>, CommandFailure> {
    let value = |name: &str| on.flag(&format!("{before}{name}"));
    let (token, scheme, credentials) =
        (value("token"), value("auth-scheme"), value("auth-credentials"));
    let Some(url) = value("url") else {
        return match [token, scheme, credentials].into_iter().any(|one| one.is_some()) {
            true => Err(CommandFailure::usage(format!("missing --{before}url"))),
            false => Ok(None),
        };
    };
    HttpOrigin::parse(url)
        .map_err(|error| CommandFailure::usage(format!("--{before}url {url:?}: {error}")))?;
    let mut config = PushConfigBuf::new(url);
    if let Some(token) = token {
        config = config.token(token);
    }
    match (scheme, credentials) {
        (Some(scheme), credentials) => {
            config = config.authentication(scheme, credentials.unwrap_or_default());
        }
        (None, Some(_)) => {
            return Err(CommandFailure::usage(format!(
                "--{before}auth-credentials needs --{before}auth-scheme, such as Bearer",
            )));
        }
        (None, None) => {}
    }
    Ok(Some(config))
}

/// The events that the flags name; `None`: the flags name no events.
///
/// # Errors
/// A [`CommandFailure`] of usage.
fn filter(on: &Invocation<'_>) -> Result<Option<PushFilter>, CommandFailure> {
    let (events, coalesce) = (on.flag("events"), on.flags.get_flag("coalesce"));
    if events.is_none() && !coalesce {
        return Ok(None);
    }
    let mut filter = PushFilter::default();
    if coalesce {
        filter = filter.coalesced(true);
    }
    for name in events.into_iter().flat_map(|events| events.split(',')) {
        let kind = PushFilter::named(name.trim()).ok_or_else(|| {
            let wrong = format!("--events: {name:?} must be status, artifacts or final");
            CommandFailure::usage(wrong)
        })?;
        filter = filter.with(kind);
    }
    Ok(Some(filter))
}

/// Shows one configuration.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn get(agent: &CalledAgent, on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let id = on.words.get(1).map(String::as_str);
    shown(on, agent.client.get_push_config(&on.words[0], id).await)
}

/// Lists a page of the configurations of a task.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn list(agent: &CalledAgent, on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let (size, token) = (on.flag_number("page-size")?, on.flag("page-token"));
    shown(on, agent.client.list_push_configs(&on.words[0], size, token).await)
}

/// Deletes one configuration.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn delete(agent: &CalledAgent, on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let (task, id) = (&on.words[0], &on.words[1]);
    let answer = agent.client.delete_push_config(task, id).await;
    answer.map_err(|error| failure(on, error))?;
    match on.format {
        // The operation has an empty answer (A2A 1.0 §3.1.10).
        OutputFormat::Json => on.print_json(b"{}"),
        OutputFormat::Text => {
            let mut output = on.text();
            output.field("Task", task);
            output.field("Deleted", id);
            print(&output.text);
        }
    }
    Ok(())
}

fn shown(
    on: &Invocation<'_>,
    answer: Result<Answer, peregrine::client::ClientError>,
) -> Result<(), CommandFailure> {
    let answer = answer.map_err(|error| failure(on, error))?;
    if on.format == OutputFormat::Json {
        let mut json = Vec::new();
        answer.write_json(&mut json);
        on.print_json(&json);
        return Ok(());
    }
    let mut output = on.text();
    for config in answer.push_configs() {
        config_text(&mut output, config, on.words.first().map(String::as_str));
    }
    if let Some(token) = answer.next_page_token() {
        let task = quoted(&on.words[0]);
        let mut rest = format!("{task} {}", flag("page-token", &token.to_str()));
        if let Some(size) = on.flag("page-size") {
            rest.push_str(&format!(" {}", flag("page-size", size)));
        }
        output.field("Next", &on.command("task push-config list", &rest));
    }
    print(&output.text);
    Ok(())
}

/// One configuration; its secrets are not shown.
fn config_text(output: &mut TextOutput, config: PushConfig<'_>, task: Option<&str>) {
    let text = |text: Option<peregrine::model::RawText<'_>>| {
        text.map(|text| text.to_str().into_owned()).unwrap_or_default()
    };
    let task_id = Some(text(config.task_id())).filter(|id| !id.is_empty());
    output.field("Task", task_id.as_deref().or(task).unwrap_or_default());
    output.field("Push config", &text(config.id()));
    output.field("URL", &config.url().to_str());
    if config.token().is_some() {
        output.field("Token", "***");
    }
    if config.scheme().is_some() {
        output.field("Authentication", &text(config.scheme()));
    }
    let filter = config.filter().unwrap_or_default();
    if let Some(kinds) = filter.kinds() {
        let kinds = kinds.collect::<Vec<_>>().join(",");
        output.field("Events", if kinds.is_empty() { "all" } else { &kinds });
    }
    if let Some(coalesces) = filter.coalesces() {
        output.field("Coalesce", if coalesces { "yes" } else { "no" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_shown_without_its_secrets() {
        let config = PushConfigBuf::new("https://a.example/hook").id("c-1").token("hidden");
        let config = config.bearer("hidden");
        let mut output = TextOutput::new(true);
        config_text(&mut output, config.view(), Some("t-1"));
        assert_eq!(
            output.text,
            "Task: t-1\nPush config: c-1\nURL: https://a.example/hook\nToken: ***\n\
             Authentication: Bearer\n"
        );
        let config = config.filter(PushFilter::FINAL.with(PushFilter::STATUS));
        config_text(&mut output, config.view(), None);
        assert!(output.text.ends_with("Events: status,final\n"), "{}", output.text);
        let config = config.filter(PushFilter::default().coalesced(false));
        config_text(&mut output, config.view(), None);
        assert!(output.text.ends_with("Authentication: Bearer\nCoalesce: no\n"), "{}", output.text);
    }
}
