//! The security schemes of a card, in the form of each generation (A2A 1.0 §4.5, 0.3 §5.5.3, 0.1).
//!
//! Invariant: the hybrid form contains all forms. Each of its schemes is one object with both
//! formats, the wrapper of 1.0 and the members of 0.3, which no reader confuses (wire §7.3).

use std::borrow::Cow;

use super::card::CardWriter;
use crate::model::{
    CardRequirement, CardScheme, CardSchemeKind, CardSecurity, JsonObjectBuf, Skill,
};

/// The requirements of a skill: its own, or else each requirement of the card with the skill's
/// scopes added (A2A 1.0 §4.4.5, 0.3 §5.5.4).
pub fn skill_requirements<'s>(
    skill: &'s Skill,
    of_card: Option<&CardSecurity>,
) -> Cow<'s, [CardRequirement]> {
    let (true, false, Some(of_card)) =
        (skill.security.is_empty(), skill.scopes.is_empty(), of_card)
    else {
        return Cow::Borrowed(&skill.security);
    };
    // A caller without credentials has no scopes, so an empty requirement is skipped.
    let requirements =
        of_card.requirements.iter().filter(|requirement| !requirement.schemes.is_empty());
    requirements.map(|requirement| with_scopes(requirement, &skill.scopes)).collect()
}

fn with_scopes(requirement: &CardRequirement, more: &[String]) -> CardRequirement {
    let mut requirement = requirement.clone();
    for (_, scopes) in &mut requirement.schemes {
        let missing: Vec<_> =
            more.iter().filter(|scope| !scopes.contains(scope)).cloned().collect();
        scopes.extend(missing);
    }
    requirement
}

/// The generations in a form of the card.
#[derive(Clone, Copy)]
pub(super) struct SecurityWords {
    /// The format of 1.0.
    pub(super) is_v1: bool,
    /// The format of 0.3.
    pub(super) is_v03: bool,
    /// The format of 0.1.
    pub(super) is_v01: bool,
    /// The proto format of 0.3 for schemes, which equals 1.0.
    pub(super) is_proto_v03: bool,
}

impl CardWriter {
    /// Writes the schemes and the requirements.
    pub(super) fn security(&mut self, security: &CardSecurity, words: SecurityWords) {
        let SecurityWords { is_v1, is_v03, is_v01, is_proto_v03 } = words;
        if !security.schemes.is_empty() && (is_v1 || is_v03) {
            self.open("securitySchemes", b'{');
            for scheme in &security.schemes {
                self.open(&scheme.name, b'{');
                if is_v1 || is_proto_v03 {
                    self.scheme_v1(scheme);
                }
                if is_v03 {
                    self.scheme_v03(scheme);
                }
                self.close(b'}');
            }
            self.close(b'}');
        }
        self.requirements(&security.requirements, words);
        if is_v01 {
            self.authentication(security);
        }
    }

    /// Writes the requirements of a card or of a skill.
    pub(super) fn requirements(&mut self, requirements: &[CardRequirement], words: SecurityWords) {
        if requirements.is_empty() {
            return;
        }
        if words.is_v1 {
            self.open("securityRequirements", b'[');
            for requirement in requirements {
                self.requirement_v1(requirement);
            }
            self.close(b']');
        }
        if words.is_v03 {
            self.open("security", b'[');
            for requirement in requirements {
                self.element(b'{');
                for (name, scopes) in &requirement.schemes {
                    self.texts(name, scopes);
                }
                self.close(b'}');
            }
            self.close(b']');
        }
    }

    /// A2A 1.0 §5.5: empty optional fields are omitted.
    pub(super) fn requirement_v1(&mut self, requirement: &CardRequirement) {
        self.element(b'{');
        if !requirement.schemes.is_empty() {
            self.open("schemes", b'{');
            for (name, scopes) in &requirement.schemes {
                self.open(name, b'{');
                if !scopes.is_empty() {
                    self.texts("list", scopes);
                }
                self.close(b'}');
            }
            self.close(b'}');
        }
        self.close(b'}');
    }

    pub(super) fn scheme_v1(&mut self, scheme: &CardScheme) {
        self.open(wrapper(&scheme.kind), b'{');
        self.text_unless_empty("description", &scheme.description);
        match &scheme.kind {
            CardSchemeKind::ApiKey { header } => {
                self.text("location", "header");
                self.text("name", header);
            }
            // The proto has a oneof for a single flow.
            CardSchemeKind::OAuth2 { flows, metadata_url } => {
                self.flows(flows.get(..1).unwrap_or_default(), metadata_url);
            }
            kind => self.members(kind),
        }
        self.close(b'}');
    }

    fn scheme_v03(&mut self, scheme: &CardScheme) {
        let word = match &scheme.kind {
            CardSchemeKind::ApiKey { .. } => "apiKey",
            CardSchemeKind::Http { .. } => "http",
            CardSchemeKind::OpenIdConnect { .. } => "openIdConnect",
            CardSchemeKind::OAuth2 { .. } => "oauth2",
            CardSchemeKind::MutualTls => "mutualTLS",
        };
        self.text("type", word);
        self.text_unless_empty("description", &scheme.description);
        if let CardSchemeKind::ApiKey { header } = &scheme.kind {
            self.text("in", "header");
            self.text("name", header);
        }
        self.members(&scheme.kind);
    }

    /// The members with the same names in both generations.
    fn members(&mut self, kind: &CardSchemeKind) {
        match kind {
            CardSchemeKind::Http { scheme, bearer_format } => {
                self.text("scheme", scheme);
                self.text_unless_empty("bearerFormat", bearer_format);
            }
            CardSchemeKind::OpenIdConnect { url } => self.text("openIdConnectUrl", url),
            CardSchemeKind::OAuth2 { flows, metadata_url } => self.flows(flows, metadata_url),
            CardSchemeKind::ApiKey { .. } | CardSchemeKind::MutualTls => {}
        }
    }

    fn flows(&mut self, flows: &[(String, JsonObjectBuf)], metadata_url: &str) {
        self.open("flows", b'{');
        for (name, flow) in flows {
            self.raw(name, flow.view().raw());
        }
        self.close(b'}');
        self.text_unless_empty("oauth2MetadataUrl", metadata_url);
    }

    /// A2A 0.1, `AgentAuthentication`: names of HTTP schemes, one of which suffices.
    fn authentication(&mut self, security: &CardSecurity) {
        let requirements = &security.requirements;
        // If anonymous calls are allowed, nothing is required.
        if requirements.is_empty() || requirements.iter().any(|one| one.schemes.is_empty()) {
            return;
        }
        let named = requirements.iter().flat_map(|one| &one.schemes);
        let declared = |(name, _): &(String, Vec<String>)| {
            security.schemes.iter().find(|scheme| scheme.name == *name)
        };
        let mut words: Vec<String> = Vec::new();
        for scheme in named.filter_map(declared) {
            let word = match &scheme.kind {
                CardSchemeKind::ApiKey { .. } => "apiKey",
                CardSchemeKind::Http { scheme, .. } => scheme,
                CardSchemeKind::OpenIdConnect { .. } | CardSchemeKind::OAuth2 { .. } => "Bearer",
                CardSchemeKind::MutualTls => "mutualTLS",
            };
            if !words.iter().any(|listed| listed == word) {
                words.push(word.to_owned());
            }
        }
        self.open("authentication", b'{');
        self.texts("schemes", &words);
        self.close(b'}');
    }
}

/// The member of 1.0 that wraps a scheme of this kind.
fn wrapper(kind: &CardSchemeKind) -> &'static str {
    match kind {
        CardSchemeKind::ApiKey { .. } => "apiKeySecurityScheme",
        CardSchemeKind::Http { .. } => "httpAuthSecurityScheme",
        CardSchemeKind::OpenIdConnect { .. } => "openIdConnectSecurityScheme",
        CardSchemeKind::OAuth2 { .. } => "oauth2SecurityScheme",
        CardSchemeKind::MutualTls => "mtlsSecurityScheme",
    }
}

/// The security of an agent, and the requirements of a skill, as ProtoJSON, for gRPC.
///
/// `requirements_key` is the name of the member with the requirements, which differs in 0.3; its
/// content is that of 1.0 in both.
pub fn proto_json(
    schemes: &[CardScheme],
    requirements: &[CardRequirement],
    requirements_key: &str,
) -> Vec<u8> {
    let mut json = CardWriter(vec![b'{']);
    if !schemes.is_empty() {
        json.open("securitySchemes", b'{');
        for scheme in schemes {
            json.open(&scheme.name, b'{');
            json.scheme_v1(scheme);
            json.close(b'}');
        }
        json.close(b'}');
    }
    if !requirements.is_empty() {
        json.open(requirements_key, b'[');
        for requirement in requirements {
            json.requirement_v1(requirement);
        }
        json.close(b']');
    }
    json.close(b'}');
    json.0
}

/// Appends pairs of a protected header and a signature, both base64url, to a card (A2A 1.0 §4.4.7).
pub fn push_signatures<'s>(
    card: &mut Vec<u8>,
    signatures: impl ExactSizeIterator<Item = (&'s str, &'s str)>,
) {
    if signatures.len() == 0 || card.pop() != Some(b'}') {
        return;
    }
    let mut writer = CardWriter(std::mem::take(card));
    writer.open("signatures", b'[');
    for (protected, signature) in signatures {
        writer.element(b'{');
        writer.text("protected", protected);
        writer.text("signature", signature);
        writer.close(b'}');
    }
    writer.close(b']');
    writer.close(b'}');
    *card = writer.0;
}
