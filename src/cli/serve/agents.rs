//! From `--agent` flags to agents: one arm per kind.

use std::sync::Arc;

use peregrine::agent::{Agent, Profile, echo::Echo};

use super::{super::usage::UsageError, args::AgentFlag};

/// An agent and what its card says.
pub type Loaded = (Profile, Arc<dyn Agent>);

/// Loads the agents, the default one first; without flags there is the echo agent.
///
/// # Errors
/// [`UsageError`]: an unknown kind, a script that cannot be used, a second default.
pub fn load(flags: &[AgentFlag]) -> Result<Vec<Loaded>, UsageError> {
    if flags.is_empty() {
        return Ok(vec![(Echo::profile(), Arc::new(Echo))]);
    }
    if flags.iter().filter(|flag| flag.name.is_none()).count() > 1 {
        let line = "only one --agent can be the default; give the others a name: NAME=KIND";
        return Err(UsageError(line.to_owned()));
    }
    let mut order: Vec<&AgentFlag> = flags.iter().collect();
    order.sort_by_key(|flag| flag.name.is_some());
    order.into_iter().map(load_one).collect()
}

fn load_one(flag: &AgentFlag) -> Result<Loaded, UsageError> {
    let (mut profile, agent): Loaded = match (flag.kind.as_str(), flag.arg.as_deref()) {
        ("echo", None) => (Echo::profile(), Arc::new(Echo)),
        ("echo", Some(_)) => {
            return Err(UsageError("the agent kind echo takes no argument".to_owned()));
        }
        ("script", Some(file)) if !file.is_empty() => script(file)?,
        ("script", _) => return Err(UsageError("the agent kind script needs a file".to_owned())),
        (kind, _) => {
            return Err(UsageError(format!(
                "there is no agent kind {kind:?}; kinds: echo, script:FILE"
            )));
        }
    };
    if let Some(name) = &flag.name {
        profile.name.clone_from(name);
    }
    Ok((profile, agent))
}

#[cfg(not(feature = "script"))]
fn script(_file: &str) -> Result<Loaded, UsageError> {
    Err(UsageError("this build of peregrine has no script agents".to_owned()))
}

#[cfg(feature = "script")]
fn script(file: &str) -> Result<Loaded, UsageError> {
    use peregrine::agent::script::Script;

    let text = std::fs::read_to_string(file)
        .map_err(|error| UsageError(format!("cannot read the script {file}: {error}")))?;
    let script = Script::parse(&text)
        // TOML errors may show the source below the message.
        .map_err(|error| UsageError(format!("{file}: {}", one_line(&error.to_string()))))?;
    let script = script.with_reader(peregrine::client::format::explain);
    Ok((script.profile().clone(), Arc::new(script)))
}

#[cfg(feature = "script")]
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag(name: Option<&str>, kind: &str, arg: Option<&str>) -> AgentFlag {
        let own = |text: &str| text.to_owned();
        AgentFlag { name: name.map(own), kind: own(kind), arg: arg.map(own) }
    }

    #[test]
    fn the_default_agent_comes_first() {
        let flags = [flag(Some("b"), "echo", None), flag(None, "echo", None)];
        let names: Vec<_> = load(&flags).unwrap().into_iter().map(|(p, _)| p.name).collect();
        assert_eq!(names, ["echo", "b"]);
        assert_eq!(load(&[]).unwrap().len(), 1);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (flags, said) in [
            (vec![flag(None, "ehco", None)], "there is no agent kind \"ehco\""),
            (vec![flag(None, "echo", Some("x"))], "takes no argument"),
            (vec![flag(None, "script", None)], "needs a file"),
            #[cfg(feature = "script")]
            (vec![flag(None, "script", Some("/no/such"))], "cannot read the script /no/such"),
            #[cfg(not(feature = "script"))]
            (vec![flag(None, "script", Some("/no/such"))], "has no script agents"),
            (vec![flag(None, "echo", None), flag(None, "echo", None)], "only one --agent"),
        ] {
            let UsageError(line) = load(&flags).err().unwrap();
            assert!(line.contains(said) && !line.contains('\n'), "{line}");
        }
    }
}
