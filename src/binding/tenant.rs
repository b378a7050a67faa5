//! The meaning of `tenant` in all bindings and generations: the agent and the task space of a call.
//!
//! Invariant: at the root, the name of an agent selects that agent, without a tenant. At the path
//! of an agent, its own name means no tenant, and the name of another agent is rejected. Any other
//! name is a separate task space, if the operator allows tenant names or has granted this name to
//! the caller. Tasks of a tenant are never in the task space without a tenant.

use std::collections::BTreeSet;

use crate::{
    auth::TenantGrant,
    binding::Endpoint,
    fault::{Fault, FaultKind},
    model::is_agent_name,
    service::{AgentIndex, Service},
};

/// The allowed names of tenants, in addition to names granted to callers. Names of agents are never
/// tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tenants {
    /// Any name if the server has exactly one agent; otherwise none, since the name may be a
    /// misspelled agent name.
    #[default]
    OfOneAgent,
    /// Any name.
    Any,
    /// These names.
    Named(BTreeSet<String>),
}

/// The agent and tenant of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressee<'t> {
    /// The agent.
    pub agent: AgentIndex,
    /// The tenant, if any.
    pub tenant: Option<&'t str>,
}

/// The tenant names in a call; an empty text counts as absent.
#[derive(Clone, Copy, Default)]
pub struct TenantNames<'t> {
    /// In the path or the metadata.
    pub outside: Option<&'t str>,
    /// In the params, the body or the message.
    pub inside: Option<&'t str>,
}

/// The error for a `tenant` that is not a string.
pub fn no_string() -> Fault {
    Fault::param("tenant", "must be a string")
}

impl Tenants {
    /// The first name that is not a valid name of a tenant.
    pub(crate) fn wrong_name(&self, is_agent: impl Fn(&str) -> bool) -> Option<&String> {
        let Tenants::Named(names) = self else { return None };
        names.iter().find(|name| !is_agent_name(name) || is_agent(name))
    }

    /// Whether a valid name may be the name of a tenant; no agent must have the name.
    fn allow(&self, name: &str, service: &dyn Service) -> bool {
        match self {
            Tenants::OfOneAgent => service.has_one_agent(),
            Tenants::Any => true,
            Tenants::Named(names) => names.contains(name),
        }
    }
}

/// The error for a tenant that was not granted to the caller.
#[cold]
pub fn not_granted(tenant: &str) -> Fault {
    let detail = format!("the caller may not use the tenant {tenant}");
    Fault::because(FaultKind::PermissionDenied, detail)
}

/// The agent and tenant of a call at `endpoint`; `grant`: the tenants of the caller, if
/// authenticated.
///
/// # Errors
/// `InvalidParams` for the field `tenant`, or `PermissionDenied`. The error does not reveal whether
/// a tenant exists.
#[inline]
pub fn addressee<'t>(
    service: &dyn Service,
    tenants: &Tenants,
    endpoint: Endpoint,
    names: TenantNames<'t>,
    grant: Option<&TenantGrant>,
) -> Result<Addressee<'t>, Fault> {
    match names {
        TenantNames { outside: None, inside: None } => {
            Ok(Addressee { agent: endpoint.agent, tenant: None })
        }
        names => named(service, tenants, endpoint, names, grant),
    }
}

#[cold]
fn named<'t>(
    service: &dyn Service,
    tenants: &Tenants,
    endpoint: Endpoint,
    TenantNames { outside, inside }: TenantNames<'t>,
    grant: Option<&TenantGrant>,
) -> Result<Addressee<'t>, Fault> {
    let refused = |detail: &'static str| Err(Fault::param("tenant", detail));
    let [outside, inside] = [outside, inside].map(|name| name.filter(|name| !name.is_empty()));
    let name = match (outside, inside) {
        (Some(outside), Some(inside)) if outside != inside => {
            return refused("must be the same in the request and in its path or metadata");
        }
        (Some(name), _) | (None, Some(name)) => name,
        (None, None) => return Ok(Addressee { agent: endpoint.agent, tenant: None }),
    };
    match service.agent(name) {
        Some(agent) if agent == endpoint.agent || !endpoint.is_own => {
            Ok(Addressee { agent, tenant: None })
        }
        Some(_) => refused("must name the same agent as the path"),
        None if !is_agent_name(name) => refused("no agent or tenant has this name"),
        None if tenants.allow(name, service) => {
            Ok(Addressee { agent: endpoint.agent, tenant: Some(name) })
        }
        None => match grant {
            Some(TenantGrant::Named(names)) if names.iter().any(|granted| **granted == *name) => {
                Ok(Addressee { agent: endpoint.agent, tenant: Some(name) })
            }
            Some(TenantGrant::None | TenantGrant::Named(_)) => Err(not_granted(name)),
            Some(TenantGrant::Any) | None => refused("no agent or tenant has this name"),
        },
    }
}
