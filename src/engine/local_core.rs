//! The core that runs agents, and the checks of agents before a core is created.

use std::{collections::HashMap, sync::Arc};

use crate::{
    agent::{Agent, Profile},
    engine::BuildError,
    limits::Limits,
    model::{CardSecurity, RepeatRules, is_agent_name},
    op::{Agents, Core},
    service::{AgentIndex, Service, Start, tap::Tap},
};

/// A service that runs these agents in this process and stores their tasks in memory. A
/// [`Setup`](crate::engine::Setup) with agents creates one itself; a service that routes to several
/// cores creates them with this function. For `node` see
/// [`Setup::node`](crate::engine::Setup::node).
///
/// `base_url` of `start` is not used; `workers` is the server's number of workers. `tap` records
/// the changes of the core's tasks. Repeated sends of callers with an owner are recognized
/// ([`Idempotency::Authenticated`](crate::model::Idempotency::Authenticated)). The agents can be
/// changed while the core runs: a service in front of it must resolve names with this core, or with
/// another core that has the same agents ([`Service::agent`]).
///
/// # Errors
/// Invalid limits or agents: [`BuildError::Limit`], [`BuildError::NoAgent`], [`BuildError::Name`],
/// [`BuildError::SameName`], [`BuildError::TooManyAgents`], [`BuildError::Field`],
/// [`BuildError::Security`].
pub fn local_core(
    limits: &Limits,
    agents: Vec<(Profile, Arc<dyn Agent>)>,
    node: Option<u16>,
    start: &Start,
    tap: Option<Arc<dyn Tap>>,
) -> Result<(Arc<dyn Service>, Agents), BuildError> {
    limits.check().map_err(BuildError::Limit)?;
    indexes(agents.iter().map(|(profile, _)| profile.name.clone()), limits)?;
    check_fields(&agents)?;
    let wrong = agents.iter().find_map(|(profile, _)| profile.wrong_security(None));
    if let Some(name) = wrong {
        return Err(BuildError::Security(name.to_owned()));
    }
    let core = Core::new(limits, agents, node, RepeatRules::default(), start, tap);
    Ok((Arc::clone(&core) as Arc<dyn Service>, core.agents()))
}

/// The indexes of the agents with these names.
pub(super) fn indexes(
    names: impl IntoIterator<Item = String>,
    limits: &Limits,
) -> Result<HashMap<String, AgentIndex>, BuildError> {
    let mut agents = HashMap::new();
    for name in names {
        if !is_agent_name(&name) {
            return Err(BuildError::Name(name));
        }
        let is_full = agents.len() >= limits.agents_max;
        let index = u16::try_from(agents.len()).ok().filter(|_| !is_full);
        let index = index.ok_or(BuildError::TooManyAgents)?;
        if agents.insert(name.clone(), AgentIndex(index)).is_some() {
            return Err(BuildError::SameName(name));
        }
    }
    if agents.is_empty() { Err(BuildError::NoAgent) } else { Ok(agents) }
}

/// Checks the header fields that agents request.
pub(super) fn check_fields(agents: &[(Profile, Arc<dyn Agent>)]) -> Result<(), BuildError> {
    let wrong = agents.iter().find_map(|(profile, _)| profile.wrong_field());
    wrong.map_or(Ok(()), |name| Err(BuildError::Field(name.to_owned())))
}

/// Checks the security settings of the server and of each agent.
pub(super) fn check_security(
    of_server: &CardSecurity,
    agents: &[(Profile, Arc<dyn Agent>)],
) -> Result<(), BuildError> {
    let of_agents =
        || agents.iter().find_map(|(profile, _)| profile.wrong_security(Some(of_server)));
    let wrong = of_server.wrong().or_else(of_agents);
    wrong.map_or(Ok(()), |name| Err(BuildError::Security(name.to_owned())))
}
