//! The card of an agent as a protobuf message of its generation, or as JSON in a `JsonPayload`.

use crate::{
    binding::{
        CallContext, Handled,
        answer::AnswerFormat,
        cards::{self, CardEndpoint},
        envelope::Envelope,
        interfaces::Urls,
    },
    dialect::{
        card::{self, AgentInterface, CardForm},
        card_security::skill_requirements,
    },
    fault::{Fault, FaultKind},
    model::{Call, CardSecurity, Generation, Op, Profile},
    pb::Writer,
    service::principal::ScopeSet,
};

use super::{
    card_security,
    fields::{v1, v03},
    from_json::struct_field,
};

/// Answers with the card (A2A 1.0 §3.1.11). 0.3 clients request all cards by this operation.
pub(super) fn answer(cx: &mut CallContext<'_>, format: &AnswerFormat<'_>) -> Handled {
    let mut card = Vec::new();
    let authorized = cx.authorize(Op::ExtendedCard);
    match authorized.and_then(|()| push(&mut card, cx, format)) {
        Ok(()) => {
            cx.writer.whole(format, &card);
            let details = cx.details(&Call::ExtendedCard);
            cx.ended(Some(Op::ExtendedCard), format, None, details);
        }
        Err(fault) => cx.refuse_call(Some(Op::ExtendedCard), format, &fault),
    }
    Handled::Answered
}

fn push(out: &mut Vec<u8>, cx: &CallContext<'_>, format: &AnswerFormat<'_>) -> Result<(), Fault> {
    let (config, endpoint, generation) = (cx.config, cx.endpoint, format.encode.generation);
    let extended = config.extended_card;
    if !extended && generation == Generation::V1 {
        return Err(Fault::because(FaultKind::UnsupportedOperation, cards::NO_EXTENDED));
    }
    let profile = cx.service.profile(endpoint.agent);
    let profile = profile.ok_or(FaultKind::ExtendedAgentCardNotConfigured)?;
    // The default agent answers at the root, other agents under their names.
    let name = Some(&profile.name).filter(|_| endpoint.agent.0 > 0);
    let base = name.map_or_else(String::new, |name| format!("/agents/{name}"));
    let origin = cx.origin();
    let at = CardEndpoint { config, origin: &origin, endpoint, base: &base };
    if let Envelope::Grpc { in_json: true } = format.envelope {
        let form = CardForm::ExtendedV1;
        out.append(&mut cards::body(&profile, cx.scopes(), at, form));
        return Ok(());
    }
    let urls = Urls::new(config, &origin, endpoint, &profile.name, &base);
    let interfaces = urls.interfaces(endpoint.dialect);
    let security = config.security_of(&profile);
    let skills = Skills { profile: &profile, scopes: cx.scopes(), security: &security };
    let offers = Offers { extended, push: config.push };
    match generation {
        Generation::V1 => v1(out, &skills, &interfaces, offers),
        Generation::V01 | Generation::V03 => v03(out, &skills, &interfaces, offers),
    }
    card_security::push(out, &security, generation);
    let form = match generation {
        Generation::V1 => CardForm::ExtendedV1,
        Generation::V01 | Generation::V03 => CardForm::V03,
    };
    if config.card_signer.is_some() {
        // The signature covers the card in JSON.
        let signed = cards::body(&profile, cx.scopes(), at, form);
        card_security::push_signatures(out, &signed, generation);
    }
    Ok(())
}

/// The capabilities of the server that cards declare.
#[derive(Clone, Copy)]
pub(super) struct Offers {
    pub extended: bool,
    pub push: bool,
}

/// Appends the card of 1.0; interfaces of 1.0 come first.
pub(super) fn v1(
    out: &mut Vec<u8>,
    skills: &Skills<'_>,
    interfaces: &[AgentInterface<'_>],
    offers: Offers,
) {
    use v1::{agent_capabilities as can, agent_card as field, agent_interface as interface};
    let (profile, mut writer) = (skills.profile, Writer(out));
    texts(&mut writer, field::NAME, [profile.shown_name()]);
    texts(&mut writer, field::DESCRIPTION, [&profile.description]);
    for one in card::newest_first(interfaces) {
        let nested = writer.open(field::SUPPORTED_INTERFACES, 64);
        texts(&mut writer, interface::URL, [one.url]);
        texts(&mut writer, interface::PROTOCOL_BINDING, [one.binding]);
        texts(&mut writer, interface::TENANT, one.tenant);
        texts(&mut writer, interface::PROTOCOL_VERSION, [one.version]);
        writer.close(nested);
    }
    provider(&mut writer, profile);
    texts(&mut writer, field::VERSION, [&profile.version]);
    texts(&mut writer, field::DOCUMENTATION_URL, profile.documentation_url.as_deref());
    let capabilities = writer.open(field::CAPABILITIES, 64);
    extensions(&mut writer, profile);
    writer.number(can::STREAMING, u64::from(profile.streaming));
    writer.number(can::PUSH_NOTIFICATIONS, u64::from(offers.push));
    writer.number(can::EXTENDED_AGENT_CARD, u64::from(offers.extended));
    writer.close(capabilities);
    texts(&mut writer, field::DEFAULT_INPUT_MODES, &profile.input_modes);
    texts(&mut writer, field::DEFAULT_OUTPUT_MODES, &profile.output_modes);
    skills.push(&mut writer, field::SKILLS, Generation::V1);
    texts(&mut writer, field::ICON_URL, profile.icon_url.as_deref());
}

/// Appends the card of 0.3, with the interfaces of 0.x, or with all if the agent has none of 0.x.
pub(super) fn v03(
    out: &mut Vec<u8>,
    skills: &Skills<'_>,
    interfaces: &[AgentInterface<'_>],
    offers: Offers,
) {
    use v03::{agent_capabilities as can, agent_card as field, agent_interface as interface};
    let (profile, mut writer) = (skills.profile, Writer(out));
    texts(&mut writer, field::NAME, [profile.shown_name()]);
    texts(&mut writer, field::DESCRIPTION, [&profile.description]);
    let old = || card::for_v03(interfaces);
    texts(&mut writer, field::URL, old().next().map(|one| one.url));
    provider(&mut writer, profile);
    texts(&mut writer, field::VERSION, [&profile.version]);
    texts(&mut writer, field::DOCUMENTATION_URL, profile.documentation_url.as_deref());
    let capabilities = writer.open(field::CAPABILITIES, 64);
    extensions(&mut writer, profile);
    writer.flag(can::STREAMING, profile.streaming);
    writer.flag(can::PUSH_NOTIFICATIONS, offers.push);
    writer.close(capabilities);
    texts(&mut writer, field::DEFAULT_INPUT_MODES, &profile.input_modes);
    texts(&mut writer, field::DEFAULT_OUTPUT_MODES, &profile.output_modes);
    skills.push(&mut writer, field::SKILLS, Generation::V03);
    writer.flag(field::SUPPORTS_AUTHENTICATED_EXTENDED_CARD, offers.extended);
    texts(&mut writer, field::PREFERRED_TRANSPORT, old().next().map(|one| one.binding));
    for one in old() {
        let nested = writer.open(field::ADDITIONAL_INTERFACES, 64);
        texts(&mut writer, interface::URL, [one.url]);
        texts(&mut writer, interface::TRANSPORT, [one.binding]);
        writer.close(nested);
    }
    texts(&mut writer, field::PROTOCOL_VERSION, [card::V03]);
    texts(&mut writer, field::ICON_URL, profile.icon_url.as_deref());
}

fn provider(writer: &mut Writer<'_>, profile: &Profile) {
    // Both generations use the same field numbers here.
    use v1::{agent_card as card, agent_provider as field};
    if let Some(provider) = &profile.provider {
        let nested = writer.open(card::PROVIDER, 64);
        texts(writer, field::URL, [&provider.url]);
        texts(writer, field::ORGANIZATION, [&provider.organization]);
        writer.close(nested);
    }
}

fn extensions(writer: &mut Writer<'_>, profile: &Profile) {
    // Both generations use the same field numbers here.
    use v1::{agent_capabilities as can, agent_extension as field};
    for extension in &profile.extensions {
        let nested = writer.open(can::EXTENSIONS, 64);
        texts(writer, field::URI, [&extension.uri]);
        texts(writer, field::DESCRIPTION, [&extension.description]);
        writer.flag(field::REQUIRED, extension.required);
        if let Some(params) = &extension.params {
            struct_field(writer.0, field::PARAMS, params.view().raw());
        }
        writer.close(nested);
    }
}

/// The skills of a card, and the card's security requirements.
pub(super) struct Skills<'p> {
    profile: &'p Profile,
    scopes: Option<&'p ScopeSet>,
    security: &'p CardSecurity,
}

impl Skills<'_> {
    fn push(&self, writer: &mut Writer<'_>, number: u32, generation: Generation) {
        // Both generations use the same field numbers here.
        use v1::agent_skill as field;
        for skill in card::skills(self.profile, self.scopes) {
            let [input_modes, output_modes] = card::modes_of(skill, self.profile);
            let nested = writer.open(number, 64);
            texts(writer, field::ID, [&skill.id]);
            texts(writer, field::NAME, [&skill.name]);
            texts(writer, field::DESCRIPTION, [&skill.description]);
            texts(writer, field::TAGS, &skill.tags);
            texts(writer, field::EXAMPLES, &skill.examples);
            texts(writer, field::INPUT_MODES, input_modes);
            texts(writer, field::OUTPUT_MODES, output_modes);
            let required = skill_requirements(skill, Some(self.security));
            card_security::push_of_skill(writer.0, &required, generation);
            writer.close(nested);
        }
    }
}

fn texts<T: AsRef<str>>(writer: &mut Writer<'_>, number: u32, values: impl IntoIterator<Item = T>) {
    for value in values {
        writer.bytes(number, value.as_ref().as_bytes());
    }
}
