//! Checks whether an agent may accept a message.

use crate::{
    fault::{Fault, FaultKind},
    model::Message,
    op::agents::RegisteredAgent,
};

/// The fault for a message to a removed agent that still has stored tasks.
#[cold]
pub(super) fn removed(registered: &RegisteredAgent) -> Fault {
    let name = &registered.profile.name;
    let detail = format!("the agent {name} was removed and accepts no more messages");
    Fault::because(FaultKind::UnsupportedOperation, detail)
}

/// A2A 1.0 §3.3.4: a client that does not list a required extension is rejected.
#[inline(always)]
pub(super) fn check_extensions(
    registered: &RegisteredAgent,
    named: Option<&str>,
) -> Result<(), Fault> {
    if registered.needs_extension { check_required(registered, named) } else { Ok(()) }
}

#[inline(never)]
fn check_required(registered: &RegisteredAgent, named: Option<&str>) -> Result<(), Fault> {
    let mut required = registered.profile.extensions.iter().filter(|extension| extension.required);
    let is_named = |uri: &str| named.is_some_and(|n| n.split(',').any(|one| one.trim() == uri));
    if required.all(|extension| is_named(&extension.uri)) {
        return Ok(());
    }
    let detail = "A2A-Extensions must name every extension required by the card";
    Err(Fault::because(FaultKind::ExtensionSupportRequired, detail))
}

/// A2A 1.0 §3.1.1: a part of a media type that the agent does not declare is rejected.
#[inline(always)]
pub(super) fn check_media(registered: &RegisteredAgent, message: Message<'_>) -> Result<(), Fault> {
    if registered.any_media { Ok(()) } else { check_parts(registered, message) }
}

#[inline(never)]
fn check_parts(registered: &RegisteredAgent, message: Message<'_>) -> Result<(), Fault> {
    for part in message.parts() {
        let Some(media) = part.media_type() else { continue };
        let media = media.raw().split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let is_accepted = registered.profile.input_modes.iter().any(|mode| {
            let mode = mode.as_bytes();
            mode.eq_ignore_ascii_case(media)
                || mode.strip_suffix(b"*").is_some_and(|kind| {
                    media.len() > kind.len() && media[..kind.len()].eq_ignore_ascii_case(kind)
                })
        });
        if !is_accepted {
            return Err(FaultKind::ContentTypeNotSupported.into());
        }
    }
    Ok(())
}
