//! Agent cards as clients read them.
//!
//! Cards are read leniently ([`AgentCard::read`]), and their interfaces are chosen strictly
//! ([`choose`]).

mod agent_card;
mod choose;
mod discovery;
mod error;
mod interface;
mod json;
mod lint;
mod object;
mod read;
mod read_security;
mod security;
mod signature;

pub use agent_card::{
    AgentCard, CardCapabilities, CardExtension, CardProvider, CardSignature, CardSkill,
};
pub(in crate::client) use choose::choose_all;
pub use choose::{ChooseError, ChosenInterface, Preferences, choose, next_version};
pub use discovery::{
    CardFreshness, FRESH_MS_MAX, WELL_KNOWN, card_urls, is_not_there, looks_like_card,
};
pub use error::{CardError, CardProblem};
pub use interface::{CardInterface, binding_of};
pub use lint::{CardFinding, FindingLevel, lint, validate};
pub use security::{
    ApiKeyLocation, ApiKeyScheme, HttpAuthScheme, MutualTlsScheme, OAuth2Scheme, OAuthFlow,
    OAuthFlowKind, OpenIdConnectScheme, SecurityRequirement, SecurityScheme, SecuritySchemes,
};
pub(in crate::client) use signature::check_signed;
pub use signature::{
    CardKeys, KeyError, SIGNING_KEYS_MAX, SignatureError, SignatureOutcome, SignedForm,
    SigningKeyError, SigningKeys, WhyUnverifiable, verify,
};
