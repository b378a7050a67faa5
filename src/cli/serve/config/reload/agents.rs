//! Compares the running agents with the agents of a configuration: added, replaced, removed.

use peregrine::{agent::Profile, engine::AgentChange};

use super::Loaded;

/// The running agents, each with the configuration from which it was built.
pub struct AgentChanges(Vec<RunningAgent>);

struct RunningAgent {
    name: String,
    made_of: String,
    is_script: bool,
    card: String,
}

impl RunningAgent {
    fn of(loaded: &Loaded) -> RunningAgent {
        let Loaded { profile, made_of, is_script, .. } = loaded;
        RunningAgent {
            name: profile.name.clone(),
            made_of: made_of.clone(),
            is_script: *is_script,
            card: card(profile),
        }
    }
}

/// The profile as text, for comparison.
fn card(profile: &Profile) -> String {
    format!("{profile:?}")
}

impl AgentChanges {
    /// The state for these agents, the default agent first.
    pub fn of(agents: &[Loaded]) -> AgentChanges {
        AgentChanges(agents.iter().map(RunningAgent::of).collect())
    }

    /// The changes, and their description. The agent at the root stays until a restart: if `next`
    /// has another agent at the root, the key is added to `held`.
    pub fn to(&self, next: &[Loaded], held: &mut Vec<String>) -> (Vec<AgentChange>, String) {
        let first = self.0.first();
        if first.map(|running| &running.name) != next.first().map(|loaded| &loaded.profile.name)
            && !held.iter().any(|key| key == "default_agent")
        {
            held.push("default_agent".to_owned());
        }
        let [mut added, mut replaced, mut removed, mut described] = [const { Vec::new() }; 4];
        let mut changes = Vec::new();
        for Loaded { profile, agent, made_of, is_script, .. } in next {
            let (name, profile, agent) = (profile.name.clone(), profile.clone(), agent.clone());
            match self.0.iter().find(|running| running.name == name) {
                None => {
                    added.push(name);
                    changes.push(AgentChange::Add(profile, agent));
                }
                Some(running) if running.made_of != *made_of => {
                    replaced.push(name);
                    changes.push(match running.is_script && *is_script {
                        true => AgentChange::Renew(profile, agent),
                        false => AgentChange::Replace(profile, agent),
                    });
                }
                Some(running) if running.card != card(&profile) => {
                    described.push(name);
                    changes.push(AgentChange::Describe(profile));
                }
                Some(_) => {}
            }
        }
        for running in self.0.iter().skip(1) {
            if !next.iter().any(|loaded| loaded.profile.name == running.name) {
                removed.push(running.name.clone());
                changes.push(AgentChange::Remove(running.name.clone()));
            }
        }
        let words = [
            ("added", added),
            ("replaced", replaced),
            ("with a changed card", described),
            ("removed", removed),
        ];
        let words = words.into_iter().filter(|(_, names)| !names.is_empty());
        let words: Vec<String> =
            words.map(|(word, names)| format!("{word} {}", names.join(", "))).collect();
        let description = match words.as_slice() {
            [] => "the agents are unchanged".to_owned(),
            words => format!("agents {}", words.join("; ")),
        };
        (changes, description)
    }

    /// Notes that these agents run now; the agent at the root remains.
    pub fn note_running(&mut self, next: &[Loaded]) {
        let mut running: Vec<RunningAgent> = next.iter().map(RunningAgent::of).collect();
        if let Some(first) = self.0.drain(..).next() {
            let at = running.iter().position(|other| other.name == first.name);
            let first = at.map_or(first, |at| running.remove(at));
            running.insert(0, first);
        }
        self.0 = running;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use peregrine::agent::echo::Echo;

    use super::*;

    fn loaded(name: &str, made_of: &str, version: &str) -> Loaded {
        let version = version.to_owned();
        let profile = Profile { version, ..Profile::new(name, "An agent.") };
        Loaded::new(profile, Arc::new(Echo), made_of.to_owned())
    }

    fn outcome(agents: &AgentChanges, next: &[Loaded]) -> (usize, String, Vec<String>) {
        let mut held = Vec::new();
        let (changes, description) = agents.to(next, &mut held);
        (changes.len(), description, held)
    }

    #[test]
    fn reload_changes_only_differing_agents() {
        let mut agents = AgentChanges::of(&[loaded("a", "1", "1"), loaded("b", "1", "1")]);
        let same = [loaded("a", "1", "1"), loaded("b", "1", "1")];
        assert_eq!(outcome(&agents, &same), (0, "the agents are unchanged".to_owned(), vec![]));
        let next = [loaded("a", "2", "2"), loaded("c", "1", "1")];
        let words = "agents added c; replaced a; removed b";
        assert_eq!(outcome(&agents, &next), (3, words.to_owned(), vec![]));
        agents.note_running(&next);
        let next = [loaded("a", "2", "3"), loaded("c", "1", "1")];
        assert_eq!(outcome(&agents, &next), (1, "agents with a changed card a".to_owned(), vec![]));
    }

    #[test]
    fn default_agent_is_retained_until_restart() {
        let mut agents = AgentChanges::of(&[loaded("a", "1", "1"), loaded("b", "1", "1")]);
        let next = [loaded("b", "1", "1")];
        let held = vec!["default_agent".to_owned()];
        assert_eq!(
            outcome(&agents, &next),
            (0, "the agents are unchanged".to_owned(), held.clone())
        );
        agents.note_running(&next);
        assert_eq!(outcome(&agents, &next).2, held);
        // Agent `b` is configured again, and is not added a second time.
        let again = [loaded("a", "1", "1"), loaded("b", "1", "1")];
        assert_eq!(outcome(&agents, &again), (0, "the agents are unchanged".to_owned(), vec![]));
    }
}
