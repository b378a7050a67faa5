//! Why a server cannot be set up.

use crate::{
    binding::{cors::CorsError, interfaces::InterfaceError},
    dialect,
    limits::{AGENT_FIELDS_MAX, ceiling},
};

/// Why a server cannot be set up; one line for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// There is no agent.
    NoAgent,
    /// The setup has a custom service, and also agents or a node, which a service defines itself.
    AgentsWithService,
    /// Two agents share a name.
    SameName(String),
    /// An agent's name has characters that are not allowed.
    Name(String),
    /// An agent's profile names a header field that agents may not see, or too many fields.
    Field(String),
    /// Not a valid tenant name, or the name of an agent.
    Tenant(String),
    /// A mount's path is not absolute and clean.
    Path(String),
    /// A mount names an unknown dialect.
    Dialect(String),
    /// A mount has the path of a page about the server.
    PageMount(String),
    /// Two mounts have the same path.
    SameMount(String),
    /// The public URL is not the URL of a server.
    PublicUrl(String),
    /// A mount names an unknown agent.
    Agent(String),
    /// More agents than `agents_max`.
    TooManyAgents,
    /// Not a valid value of `Origin`.
    Origin(String),
    /// Not a host, or a host with a port.
    Host(String),
    /// A security scheme without a unique name, or a requirement with an undeclared or repeated
    /// scheme.
    Security(String),
    /// Invalid CORS settings.
    Cors(CorsError),
    /// An interface that cards cannot list.
    Interfaces(InterfaceError),
    /// The limit with this name is zero, or above its maximum.
    Limit(&'static str),
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BuildError::NoAgent => write!(f, "a server needs an agent"),
            BuildError::AgentsWithService => {
                write!(
                    f,
                    "the setup has a service and also agents or a node: a service defines its own"
                )
            }
            BuildError::SameName(name) => write!(f, "two agents are called {name:?}"),
            BuildError::Name(name) => {
                write!(f, "the agent name {name:?} may only have letters, digits, '-', '_', '.'")
            }
            BuildError::Field(name) => {
                write!(f, "the agent cannot receive the header field {name:?}: it is not a ")?;
                write!(f, "request header, or the agent has more than {AGENT_FIELDS_MAX} of them")
            }
            BuildError::PageMount(path) => {
                write!(f, "the server has its own page at {path:?}: nothing can be mounted there")
            }
            BuildError::Tenant(name) => write!(
                f,
                "the tenant name {name:?} is the name of an agent, or has characters other than \
                 letters, digits, '-', '_', '.'"
            ),
            BuildError::Path(path) => {
                write!(f, "the mount path {path:?} is not an absolute path without '.' or '%'")
            }
            BuildError::Dialect(name) => {
                let names: Vec<_> = dialect::ALL.iter().map(|dialect| dialect.name).collect();
                write!(f, "unknown dialect {name:?}; known dialects: {}", names.join(", "))
            }
            BuildError::SameMount(path) => write!(f, "two mounts have the path {path:?}"),
            BuildError::PublicUrl(url) => {
                write!(f, "the public URL {url:?} is not an http or https URL ")?;
                write!(f, "without user information, query and fragment")
            }
            BuildError::Agent(name) => write!(f, "no agent is called {name:?}"),
            BuildError::TooManyAgents => write!(f, "more agents than agents_max"),
            BuildError::Origin(text) => {
                write!(f, "the origin {text:?} must be scheme://host:port or *")
            }
            BuildError::Host(text) => {
                write!(f, "the host {text:?} must be a name or address without a port, or *")
            }
            BuildError::Security(name) => {
                write!(f, "the security scheme {name:?} must be declared exactly once: it is ")?;
                write!(f, "declared twice, or required without a declaration")
            }
            BuildError::Cors(error) => error.fmt(f),
            BuildError::Interfaces(error) => error.fmt(f),
            BuildError::Limit(name) => {
                write!(f, "the limit {name} must be a whole number from 1 to {}", ceiling(name))
            }
        }
    }
}

impl std::error::Error for BuildError {}
