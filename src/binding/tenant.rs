//! The agent and the task space that a call addresses: the meaning of `tenant`, in every binding
//! and generation.
//!
//! Invariant: at the root an agent's name addresses that agent, without a tenant. At an agent's own
//! path its own name is no tenant, and another agent's name is rejected. Any other name is a
//! separate task space, if the operator allows tenant names or has granted this one to the caller;
//! it never is the default agent's.

use std::collections::BTreeSet;

use crate::{
    auth::TenantGrant,
    binding::Endpoint,
    fault::{Fault, FaultKind},
    model::is_agent_name,
    service::{AgentIndex, Service},
};

/// The names that tenants may have, in addition to names granted to callers; agents' names are
/// excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tenants {
    /// Any name if the server has one agent, else none: a name may be a misspelled agent's.
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
    /// The tenant, if any.
    pub tenant: Option<&'t str>,
}

/// The tenant names in a call; an empty text counts as absent.
#[derive(Clone, Copy, Default)]
pub struct TenantNames<'t> {
    /// Outside of it: in the path or the metadata.
    pub beside: Option<&'t str>,
    /// In it: in the params, the body or the message.
    pub inside: Option<&'t str>,
}

/// The error for a `tenant` that is not a string.
pub fn no_string() -> Fault {
    Fault::param("tenant", "must be a string")
}

impl Tenants {
    /// The first name that cannot be a tenant's.
    pub(crate) fn wrong_name(&self, is_agent: impl Fn(&str) -> bool) -> Option<&String> {
        let Tenants::Named(names) = self else { return None };
        names.iter().find(|name| !is_agent_name(name) || is_agent(name))
    }

    /// Whether a valid name that no agent has may be a tenant's.
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

/// The agent and tenant of a call at `endpoint`; `grant` is its caller's, if the caller is
/// authenticated.
///
/// # Errors
/// Invalid parameters that name `tenant`, or `PermissionDenied`: existing tenants are not revealed
/// to a caller without a grant.
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
