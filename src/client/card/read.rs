//! Reads cards of every generation (wire §1.6, §7) into the form of 1.0.
//!
//! Invariant: harmless mistakes are accepted: unknown or missing members, a number instead of a
//! text. A mistake that would make a client act wrongly is an error that names the member: no name,
//! no interface, or invalid security. A card with `supportedInterfaces` is a card of 1.0; its older
//! members add no interface, because no signature covers them. Members have their JSON name or
//! their proto name; `null` counts as absent.

use crate::{json::without_mark, model::Generation};

use super::{
    super::limits::{CARD_BYTES_MAX, CARD_DEPTH_MAX, CARD_ENTRIES_MAX, CARD_INTERFACES_MAX},
    AgentCard, CardCapabilities, CardError, CardExtension, CardInterface, CardProblem,
    CardProvider, CardSignature, CardSkill, json,
    object::CardObject,
    read_security,
};

impl AgentCard {
    /// Reads a card of 0.1, 0.2, 0.3 or 1.0, a card for several of these versions, or a card in the
    /// JSON of the proto of 0.3.
    ///
    /// `json` has at most 1 MiB, 64 levels, 64 interfaces, and 1024 skills, schemes, or entries of
    /// any other list.
    ///
    /// # Errors
    /// [`CardError`] names the member.
    pub fn read(json: &[u8]) -> Result<AgentCard, CardError> {
        AgentCard::read_within(json, CARD_BYTES_MAX)
    }

    /// The same as [`AgentCard::read`] with another limit of bytes, such as
    /// [`ClientLimits::card_bytes_max`](crate::client::ClientLimits::card_bytes_max).
    ///
    /// # Errors
    /// [`CardError`] names the member.
    pub fn read_within(json: &[u8], bytes_max: usize) -> Result<AgentCard, CardError> {
        let tree = json::read(json, bytes_max, CARD_DEPTH_MAX)?;
        // serde_json has read the document, so it is UTF-8: ASCII outside of strings, and valid in
        // them.
        let raw = String::from_utf8_lossy(without_mark(json)).into_owned().into_boxed_str();
        let card = CardObject::of("", &tree).filter(CardObject::is_object);
        let card = card.ok_or_else(|| not_an_object(""))?;
        let name = card.text("name");
        let name = name.filter(|name| !name.trim().is_empty());
        let name = name.ok_or_else(|| card.missing("name"))?;
        let (generation, interfaces) = interfaces(&card)?;
        let security_schemes = read_security::schemes(&card)?;
        let (security_schemes, security_requirements) =
            read_security::with_requirements(&card, generation, security_schemes)?;
        Ok(AgentCard {
            name,
            description: card.text("description").unwrap_or_default(),
            interfaces,
            provider: card.object("provider").map(|provider| CardProvider {
                url: provider.text("url").unwrap_or_default(),
                organization: provider.text("organization").unwrap_or_default(),
            }),
            version: card.text("version").unwrap_or_default(),
            documentation_url: card.text("documentationUrl"),
            capabilities: capabilities(&card)?,
            security_schemes,
            security_requirements,
            default_input_modes: card.texts("defaultInputModes")?,
            default_output_modes: card.texts("defaultOutputModes")?,
            skills: skills(&card)?,
            signatures: signatures(&card)?,
            icon_url: card.text("iconUrl"),
            generation,
            raw,
        })
    }
}

impl AgentCard {
    /// Corrects the generation by the name of the file: a card without a version but with
    /// `authentication` is read as 0.1, except in `agent-card.json`, which only clients of 0.3 and
    /// later request (wire §7.1).
    #[must_use]
    pub fn in_file(mut self, path: &str) -> AgentCard {
        let name = path.split('?').next().unwrap_or_default().rsplit(['/', '\\']).next();
        if self.generation == Generation::V01 && name == Some("agent-card.json") {
            self.generation = Generation::V03;
            let assumed = self.interfaces.iter_mut().filter(|one| one.is_version_assumed);
            assumed.for_each(|one| one.version_text = V0_VERSION.to_owned());
        }
        self
    }
}

fn not_an_object(member: &str) -> CardError {
    CardError::of(member, CardProblem::Type("an object"))
}

/// The interfaces, and the generation of the card according to their members.
fn interfaces(card: &CardObject<'_>) -> Result<(Generation, Vec<CardInterface>), CardError> {
    let listed = card.list_max("supportedInterfaces", CARD_INTERFACES_MAX)?;
    if !listed.is_empty() {
        return Ok((Generation::V1, v1_interfaces(card, &listed)?));
    }
    if card.get("url").is_none() && card.get("supportedInterfaces").is_some() {
        return Err(card.missing("supportedInterfaces"));
    }
    v0_interfaces(card)
}

/// An invalid interface is skipped if another one is valid.
fn v1_interfaces(
    card: &CardObject<'_>,
    listed: &[(String, &serde_json::Value)],
) -> Result<Vec<CardInterface>, CardError> {
    // The release candidate of 1.0 had the versions in the card, not in the interfaces.
    let of_card = card.texts("protocolVersions")?.into_iter().max().unwrap_or_default();
    let (mut read, mut first_error) = (Vec::new(), None);
    for (member, value) in listed {
        let one = CardObject::of(member, value).ok_or_else(|| not_an_object(member));
        let one = one.and_then(|one| {
            let declared = one.text("protocolVersion").filter(|declared| !declared.is_empty());
            Ok(CardInterface {
                url: one.required_text("url")?,
                binding_name: one.text_of(&["protocolBinding", "transport"]).unwrap_or_default(),
                tenant: one.text("tenant").unwrap_or_default(),
                is_version_assumed: declared.is_none(),
                version_text: declared.unwrap_or_else(|| of_card.clone()),
            })
        });
        match one {
            Ok(one) => read.push(one),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match first_error {
        Some(error) if read.is_empty() => Err(error),
        _ => Ok(read),
    }
}

/// The assumed version of cards without `protocolVersion` (wire §1.9).
const V0_VERSION: &str = "0.3";
/// The assumed version if such a card has `authentication`, a member of 0.1 only.
const V01_VERSION: &str = "0.1";

/// `url` first, then the entries of `additionalInterfaces` (A2A 0.3 §5.5.5).
fn v0_interfaces(card: &CardObject<'_>) -> Result<(Generation, Vec<CardInterface>), CardError> {
    let declared = card.text("protocolVersion").filter(|declared| !declared.is_empty());
    let is_v01 = declared.is_none()
        && card.get("authentication").is_some()
        && card.get("securitySchemes").is_none()
        && card.get("preferredTransport").is_none();
    let assumed = if is_v01 { V01_VERSION } else { V0_VERSION };
    let is_version_assumed = declared.is_none();
    let version_text = declared.unwrap_or_else(|| assumed.to_owned());
    let of = |url: String, binding_name: String| CardInterface {
        url,
        binding_name,
        tenant: String::new(),
        version_text: version_text.clone(),
        is_version_assumed,
    };
    // A2A 0.3 §5.5: the default of `preferredTransport` is JSON-RPC.
    let preferred = card.text("preferredTransport").filter(|name| !name.is_empty());
    let preferred = preferred.unwrap_or_else(|| "JSONRPC".to_owned());
    let mut interfaces = vec![of(card.required_text("url")?, preferred)];
    for (member, value) in card.list_max("additionalInterfaces", CARD_INTERFACES_MAX)? {
        let Some(one) = CardObject::of(&member, value) else { continue };
        let name = one.text_of(&["transport", "protocolBinding"]);
        let (Some(url), Some(name)) = (one.text("url"), name) else { continue };
        let one = of(url, name);
        if !interfaces.contains(&one) {
            interfaces.push(one);
        }
    }
    let generation = match interfaces[0].version().and_then(|version| version.generation()) {
        Some(Generation::V01) => Generation::V01,
        Some(Generation::V03 | Generation::V1) | None => Generation::V03,
    };
    Ok((generation, interfaces))
}

fn capabilities(card: &CardObject<'_>) -> Result<CardCapabilities, CardError> {
    // 0.3 and the snapshots before 1.0 had this flag in the card, under these two names.
    let names = ["supportsAuthenticatedExtendedCard", "supportsExtendedAgentCard"];
    let of_card = names.into_iter().find_map(|name| card.flag(name));
    let Some(object) = card.object("capabilities") else {
        return Ok(CardCapabilities {
            extended_agent_card: of_card,
            ..CardCapabilities::default()
        });
    };
    let extensions = object.list("extensions")?.into_iter().filter_map(|(member, value)| {
        let one = CardObject::of(&member, value)?;
        Some(CardExtension {
            uri: one.text("uri").unwrap_or_default(),
            description: one.text("description").unwrap_or_default(),
            required: one.flag("required").unwrap_or_default(),
            params: one.map("params"),
        })
    });
    let extensions: Vec<CardExtension> = extensions.collect();
    Ok(CardCapabilities {
        streaming: object.flag("streaming"),
        push_notifications: object.flag("pushNotifications"),
        extensions,
        extended_agent_card: object.flag("extendedAgentCard").or(of_card),
    })
}

fn skills(card: &CardObject<'_>) -> Result<Vec<CardSkill>, CardError> {
    let mut skills = Vec::new();
    for (member, value) in card.list_max("skills", CARD_ENTRIES_MAX)? {
        let Some(one) = CardObject::of(&member, value) else { continue };
        let id = one.text("id").unwrap_or_default();
        let name = one.text("name").unwrap_or_default();
        skills.push(CardSkill {
            id,
            name,
            description: one.text("description").unwrap_or_default(),
            tags: one.texts("tags")?,
            examples: one.texts("examples")?,
            input_modes: one.texts("inputModes")?,
            output_modes: one.texts("outputModes")?,
            security_requirements: read_security::requirements(&one)?,
        });
    }
    Ok(skills)
}

fn signatures(card: &CardObject<'_>) -> Result<Vec<CardSignature>, CardError> {
    let signatures = card.list("signatures")?.into_iter().map(|(member, value)| {
        // An entry that is not an object becomes a signature that cannot be verified.
        let Some(one) = CardObject::of(&member, value) else { return CardSignature::default() };
        CardSignature {
            protected: one.text("protected").unwrap_or_default(),
            signature: one.text("signature").unwrap_or_default(),
            header: one.map("header"),
        }
    });
    Ok(signatures.collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        client::card::{ApiKeyLocation, OAuthFlowKind, SecurityRequirement, SecurityScheme},
        dialect::version::ProtocolVersion,
    };

    fn read(json: &str) -> AgentCard {
        let card = AgentCard::read(json.as_bytes()).unwrap();
        let canonical = card.to_v1_json();
        let again = AgentCard::read(canonical.as_bytes()).unwrap();
        assert_eq!(again.to_v1_json(), canonical);
        card
    }

    fn error(json: &str) -> (String, CardProblem) {
        let error = AgentCard::read(json.as_bytes()).unwrap_err();
        (error.member, error.problem)
    }

    /// URL, binding and version of each interface.
    fn interfaces(card: &AgentCard) -> Vec<(&str, &str, &str)> {
        let all = card.interfaces.iter();
        all.map(|one| (&*one.url, &*one.binding_name, &*one.version_text)).collect()
    }

    const V1: &str = r#"{"name":"A","description":"d","supportedInterfaces":[
        {"url":"https://a/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0","tenant":"t"}],
        "provider":{"url":"https://o","organization":"O"},"version":"7",
        "documentationUrl":"","capabilities":{"streaming":false,"extensions":[
        {"uri":"urn:x","required":true,"params":{"deep":[1,{"a":null}]}}],"extendedAgentCard":true},
        "securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"cookie","name":"c"}},
        "o":{"oauth2SecurityScheme":{"flows":{"deviceCode":{"deviceAuthorizationUrl":"https://d",
        "tokenUrl":"https://t","scopes":{"s":"x"}}},"oauth2MetadataUrl":"https://m"}},
        "m":{"mtlsSecurityScheme":{}}},"securityRequirements":[{"schemes":{"k":{},
        "o":{"list":["s"]}}}],"defaultInputModes":["text/plain"],"defaultOutputModes":[],
        "skills":[{"id":"i","name":"n","description":"d","tags":[]}],
        "signatures":[{"protected":"e30","signature":"AA"}]}"#;

    #[test]
    fn card_of_1_0_is_written_back_unchanged() {
        let card = read(V1);
        let strip = |text: &str| {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            serde_json::to_string(&value).unwrap()
        };
        assert_eq!(strip(&card.to_v1_json()), strip(V1));
        assert_eq!((card.generation, card.raw_json()), (Generation::V1, V1));
        assert_eq!(card.interfaces[0].tenant, "t");
        assert_eq!(card.required_extensions().collect::<Vec<_>>(), ["urn:x"]);
        assert!(!card.streams() && !card.pushes() && card.is_extendable());
    }

    #[test]
    fn card_of_0_3_is_converted_to_1_0_form() {
        let card = read(
            r#"{"protocolVersion":"0.3.0","name":"A","description":"d","version":"1",
            "url":"https://a/","preferredTransport":"GRPC","additionalInterfaces":[
            {"url":"https://a/","transport":"GRPC"},{"url":"https://a/v","transport":"HTTP+JSON"}],
            "capabilities":{"streaming":true,"stateTransitionHistory":true},
            "supportsAuthenticatedExtendedCard":true,"securitySchemes":{
            "b":{"type":"http","scheme":"bearer"},"k":{"type":"apiKey","in":"header","name":"X"},
            "o":{"type":"oauth2","flows":{"clientCredentials":{"tokenUrl":"https://t",
            "scopes":{}},"authorizationCode":{"authorizationUrl":"https://z",
            "tokenUrl":"https://t","scopes":{}}}},"i":{"type":"openIdConnect",
            "openIdConnectUrl":"https://i"},"m":{"type":"mutualTLS"},"w":{"type":"new"}},
            "security":[{"b":[],"k":[]},{"o":["s"]}],"defaultInputModes":["text/plain"],
            "defaultOutputModes":["text/plain"],"skills":[{"id":"i","name":"n",
            "description":"d","tags":["t"],"security":[{"b":[]}]}]}"#,
        );
        let expected = [("https://a/", "GRPC", "0.3.0"), ("https://a/v", "HTTP+JSON", "0.3.0")];
        assert_eq!(interfaces(&card), expected);
        assert_eq!(card.generation, Generation::V03);
        assert_eq!(card.interfaces[0].version(), Some(ProtocolVersion::V0_3));
        assert!(card.streams() && card.is_extendable());
        let kinds: Vec<&str> = card.security_schemes.values().map(SecurityScheme::kind).collect();
        assert_eq!(kinds, ["bearer", "openIdConnect", "apiKey", "mutualTLS", "oauth2", "new"]);
        let SecurityScheme::OAuth2(oauth) = &card.security_schemes["o"] else { panic!("oauth2") };
        let flows: Vec<OAuthFlowKind> = oauth.flows.iter().map(|flow| flow.kind).collect();
        assert_eq!(flows, [OAuthFlowKind::AuthorizationCode, OAuthFlowKind::ClientCredentials]);
        let names: Vec<&String> = card.security_requirements[0].schemes.keys().collect();
        assert_eq!(names, ["b", "k"]);
        assert_eq!(card.security_requirements[1].schemes["o"], ["s"]);
        assert_eq!(card.skills[0].security_requirements.len(), 1);
        assert!(
            card.to_v1_json().contains(r#""securityRequirements":[{"schemes":{"b":{},"k":{}}}"#)
        );
    }

    #[test]
    fn protocol_version_of_old_card_is_inferred() {
        let card = read(
            r#"{"name":"A","url":"http://a","version":"1","capabilities":{},"skills":[],
            "authentication":{"schemes":["Bearer","custom"]}}"#,
        );
        assert_eq!(interfaces(&card), [("http://a", "JSONRPC", "0.1")]);
        assert_eq!(card.generation, Generation::V01);
        let SecurityScheme::Http(http) = &card.security_schemes["Bearer"] else { panic!("http") };
        assert_eq!((http.scheme.as_str(), card.security_requirements.len()), ("Bearer", 2));
        assert_eq!(card.security_schemes["custom"], SecurityScheme::Unknown("custom".to_owned()));
        let card = read(r#"{"name":"A","url":"http://a","version":"1","capabilities":{}}"#);
        assert_eq!((interfaces(&card)[0].2, card.generation), ("0.3", Generation::V03));
        assert!(card.interfaces[0].is_version_assumed);
        let card = read(r#"{"name":"A","url":"http://a","protocolVersion":"0.2.5"}"#);
        assert_eq!((interfaces(&card)[0].2, card.generation), ("0.2.5", Generation::V03));
        let free = read(r#"{"name":"A","url":"u","authentication":{"schemes":["public"]}}"#);
        assert!(free.security_requirements.is_empty());
    }

    #[test]
    fn empty_array_and_empty_object_are_interchangeable() {
        // PHP writes empty objects as arrays, Lua writes empty arrays as objects.
        let php = read(
            r#"{"name":"A","url":"u","protocolVersion":"0.3.0","capabilities":[],"provider":[],
            "securitySchemes":[],"security":[[]],"skills":[]}"#,
        );
        assert!(php.security_schemes.is_empty());
        assert_eq!(php.security_requirements, [SecurityRequirement::default()]);
        let php = read(
            r#"{"name":"A","supportedInterfaces":[{"url":"u","protocolBinding":"JSONRPC"}],
            "securitySchemes":{"m":{"mtlsSecurityScheme":[]},"x":[]},
            "securityRequirements":[{"schemes":[]},{"schemes":{"m":[]}}]}"#,
        );
        assert!(matches!(php.security_schemes["m"], SecurityScheme::MutualTls(_)));
        // Unknown security is not read as "nothing is required".
        assert!(matches!(php.security_schemes["x"], SecurityScheme::Unknown(_)));
        assert!(php.security_requirements[0].schemes.is_empty());
        assert_eq!(php.security_requirements[1].schemes.len(), 1);
        let lua = read(
            r#"{"name":"A","url":"u","protocolVersion":"0.3.0","security":{},"skills":{},
            "additionalInterfaces":{},"defaultInputModes":{}}"#,
        );
        assert!(lua.security_requirements.is_empty() && lua.skills.is_empty());
        for (json, member) in [
            ("[]", ""),
            (r#"{"name":"A","url":"u","securitySchemes":[1]}"#, "securitySchemes"),
            (r#"{"name":"A","url":"u","security":{"a":[]}}"#, "security"),
        ] {
            assert_eq!(error(json).0, member);
        }
    }

    #[test]
    fn card_with_supported_interfaces_is_read_as_1_0() {
        let card = read(
            r#"{"name":"A","url":"http://old","preferredTransport":"GRPC",
            "protocolVersion":"0.3.0","additionalInterfaces":[{"url":"x","transport":"GRPC"}],
            "supportedInterfaces":[{"url":"http://n","protocolBinding":"JSONRPC",
            "protocolVersion":"1.0"}],"securitySchemes":{"k":{"type":"apiKey","in":"query",
            "name":"old","apiKeySecurityScheme":{"location":"header","name":"new"}}},
            "security":[{"old":[]}],"securityRequirements":[{"schemes":{"k":{"list":[]}}}]}"#,
        );
        assert_eq!(interfaces(&card), [("http://n", "JSONRPC", "1.0")]);
        let SecurityScheme::ApiKey(key) = &card.security_schemes["k"] else { panic!("apiKey") };
        assert_eq!((key.location, key.name.as_str()), (ApiKeyLocation::Header, "new"));
        assert_eq!(card.security_requirements[0].schemes.keys().next().unwrap(), "k");
        let card = read(r#"{"name":"A","supportedInterfaces":[],"url":"http://old"}"#);
        assert_eq!((interfaces(&card)[0].0, card.generation), ("http://old", Generation::V03));
    }

    #[test]
    fn proto_field_names_in_cards_are_accepted() {
        let card = read(
            r#"{"name":"A","supported_interfaces":[{"url":"http://a","protocol_binding":"GRPC",
            "protocol_version":"1.0"}],"default_input_modes":["a/b"],"capabilities":
            {"push_notifications":true},"security_schemes":{"h":{"http_auth_security_scheme":
            {"scheme":"Basic"}},"o":{"oauth2_security_scheme":{"flows":{"client_credentials":
            {"token_url":"https://t"}},"oauth2_metadata_url":"https://m"}}}}"#,
        );
        assert_eq!(interfaces(&card), [("http://a", "GRPC", "1.0")]);
        assert!(card.pushes());
        assert_eq!(card.default_input_modes, ["a/b"]);
        let SecurityScheme::OAuth2(oauth) = &card.security_schemes["o"] else { panic!("oauth2") };
        assert_eq!(oauth.flows[0].token_url.as_deref(), Some("https://t"));
        assert_eq!(oauth.metadata_url, "https://m");
        let card = read(
            r#"{"name":"A","url":"http://a","protocolVersion":"0.3.0","securitySchemes":
            {"h":{"httpAuthSecurityScheme":{"scheme":"bearer"}}},
            "security":[{"schemes":{"h":{"list":["s"]}}}]}"#,
        );
        assert_eq!(card.security_requirements[0].schemes["h"], ["s"]);
    }

    #[test]
    fn harmless_card_mistakes_are_accepted() {
        let card = read(
            r#"{"name":7,"version":1.5,"description":["x"],"provider":"me","iconUrl":null,
            "capabilities":["streaming"],"skills":[3,{"id":1,"tags":"one"}],"x":{"y":1},
            "defaultInputModes":"text/plain","defaultOutputModes":[1,"a",{}],
            "supportedInterfaces":[7,{"protocolBinding":"GRPC"},{"url":"u","transport":"jsonrpc"}],
            "signatures":[1],"protocolVersions":["0.3","1.0"]}"#,
        );
        assert_eq!((card.name.as_str(), card.version.as_str()), ("7", "1.5"));
        assert_eq!((card.description.as_str(), card.provider), ("", None));
        assert_eq!((card.skills.len(), card.skills[0].tags.len()), (1, 1));
        assert_eq!(card.default_input_modes, ["text/plain"]);
        assert_eq!(card.default_output_modes, ["1", "a"]);
        assert_eq!(card.interfaces.len(), 1);
        assert_eq!(card.interfaces[0].binding(), Some(crate::client::Binding::JsonRpc));
        assert_eq!(card.interfaces[0].version_text, "1.0");
        assert_eq!(card.signatures, [CardSignature::default()]);
        let card = read(r#"{"name":"A","url":"u","capabilities":{"streaming":"True"}}"#);
        assert!(card.streams());
    }

    #[test]
    fn invalid_card_error_names_the_member() {
        use CardProblem::{Missing, Type};
        for (json, member, problem) in [
            ("[]", "", Type("an object")),
            ("{}", "name", Missing),
            (r#"{"name":" "}"#, "name", Missing),
            (r#"{"name":"A"}"#, "url", Missing),
            (r#"{"name":"A","url":7}"#, "url", Type("a string")),
            (r#"{"name":"A","supportedInterfaces":[]}"#, "supportedInterfaces", Missing),
            (r#"{"name":"A","supportedInterfaces":{}}"#, "supportedInterfaces", Missing),
            (
                r#"{"name":"A","supportedInterfaces":[{"url":""},7]}"#,
                "supportedInterfaces[0].url",
                Missing,
            ),
            (
                r#"{"name":"A","url":"u","securitySchemes":["k"]}"#,
                "securitySchemes",
                Type("an object"),
            ),
            (
                r#"{"name":"A","url":"u","securitySchemes":{"k":"http"}}"#,
                "securitySchemes.k",
                Type("an object"),
            ),
            (r#"{"name":"A","url":"u","security":{"k":[]}}"#, "security", Type("an array")),
            (r#"{"name":"A","url":"u","security":["k"]}"#, "security[0]", Type("an object")),
        ] {
            assert_eq!(error(json), (member.to_owned(), problem), "{json}");
        }
        let error = AgentCard::read(br#"{"name":"A","url":"u","securitySchemes":7}"#).unwrap_err();
        let message = "the agent card's member securitySchemes is not an object";
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn card_list_lengths_and_size_are_bounded() {
        let long = |max: usize, entry: &str| vec![entry; max + 1].join(",");
        let skills = long(CARD_ENTRIES_MAX, "{}");
        let json = format!(r#"{{"name":"A","url":"u","skills":[{skills}]}}"#);
        let too_many = CardProblem::TooMany(CARD_ENTRIES_MAX);
        assert_eq!(error(&json), ("skills".to_owned(), too_many.clone()));
        let interfaces = long(CARD_INTERFACES_MAX, r#"{"url":"u"}"#);
        let json = format!(r#"{{"name":"A","supportedInterfaces":[{interfaces}]}}"#);
        let problem = CardProblem::TooMany(CARD_INTERFACES_MAX);
        assert_eq!(error(&json), ("supportedInterfaces".to_owned(), problem));
        let schemes = (0..=CARD_ENTRIES_MAX).map(|n| format!(r#""{n}":{{}}"#));
        let schemes = schemes.collect::<Vec<_>>().join(",");
        let json = format!(r#"{{"name":"A","url":"u","securitySchemes":{{{schemes}}}}}"#);
        assert_eq!(error(&json), ("securitySchemes".to_owned(), too_many));
        let large = format!(r#"{{"name":"{}"}}"#, "x".repeat(CARD_BYTES_MAX));
        assert_eq!(error(&large).1, CardProblem::TooLarge(CARD_BYTES_MAX));
    }
}
