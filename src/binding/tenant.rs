//! Which agent and which space of tasks a call means: what `tenant` says, in every binding and
//! generation.
//!
//! Invariant: at the root an agent's name is that agent, without a tenant. At an agent's own place
//! its own name is no tenant, and another agent's is refused. Any other name is a space of tasks of
//! its own, where the operator lets tenants be named, or has granted the caller this one by name;
//! it is never the default agent's.

use std::collections::BTreeSet;

use crate::{
    auth::TenantGrant,
    binding::Endpoint,
    fault::{Fault, FaultKind},
    model::is_agent_name,
    service::{AgentIndex, Service},
};

/// Which names tenants may have that no agent has, beside those that callers are granted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tenants {
    /// Any, as long as the server has one agent; else none: a name may be an agent's that is
    /// misspelled.
    #[default]
    OfOneAgent,
    /// Any.
    Any,
    /// These.
    Named(BTreeSet<String>),
}

/// The agent and tenant of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressee<'t> {
    /// The agent.
    pub agent: AgentIndex,
    /// The tenant, if there is one.
    pub tenant: Option<&'t str>,
}

/// What a call says of its tenant; an empty text says nothing.
#[derive(Clone, Copy, Default)]
pub struct TenantNames<'t> {
    /// Beside it: the path, or metadata.
    pub beside: Option<&'t str>,
    /// In it: the params, the body, the message.
    pub inside: Option<&'t str>,
}

/// The error for a `tenant` that is no text.
pub fn no_string() -> Fault {
    Fault::param("tenant", "must be a string")
}

impl Tenants {
    /// One of these that cannot be a tenant's name.
    pub(crate) fn wrong_name(&self, is_agent: impl Fn(&str) -> bool) -> Option<&String> {
        let Tenants::Named(names) = self else { return None };
        names.iter().find(|name| !is_agent_name(name) || is_agent(name))
    }

    /// Whether a good name that no agent has may be a tenant's.
    fn allow(&self, name: &str, service: &dyn Service) -> bool {
        match self {
            Tenants::OfOneAgent => service.has_one_agent(),
            Tenants::Any => true,
            Tenants::Named(names) => names.contains(name),
        }
    }
}

/// The error for a caller that names a tenant that is not among its own.
#[cold]
pub fn not_granted(tenant: &str) -> Fault {
    let detail = format!("the caller may not use the tenant {tenant}");
    Fault::because(FaultKind::PermissionDenied, detail)
}

/// The agent and tenant of a call at `endpoint`; `grant` is that of its caller, where that is
/// known.
///
/// # Errors
/// Invalid parameters that name `tenant`, or `PermissionDenied`: which tenants there are is not
/// revealed to a caller that may not name them.
#[inline]
pub fn addressee<'t>(
    service: &dyn Service,
    tenants: &Tenants,
    endpoint: Endpoint,
    names: TenantNames<'t>,
    grant: Option<&TenantGrant>,
) -> Result<Addressee<'t>, Fault> {
    match names {
        TenantNames { beside: None, inside: None } => {
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
    TenantNames { beside, inside }: TenantNames<'t>,
    grant: Option<&TenantGrant>,
) -> Result<Addressee<'t>, Fault> {
    let refused = |detail: &'static str| Err(Fault::param("tenant", detail));
    let [beside, inside] = [beside, inside].map(|name| name.filter(|name| !name.is_empty()));
    let name = match (beside, inside) {
        (Some(beside), Some(inside)) if beside != inside => {
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
