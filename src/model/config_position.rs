//! The paths of a push configuration's members, from the params of a call, as the caller's dialect
//! names them (wire §1.6, §8).

use super::PushForm;

/// The position of a configuration in the params of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConfigPosition {
    /// The form of the caller's dialect.
    pub form: PushForm,
    /// True: the configuration is sent with a message.
    pub is_inline: bool,
}

/// The path of a configuration, and of its members.
type MemberPaths = (&'static str, [&'static str; 9]);

/// The paths below a prefix; dialects name the scheme of an authentication `scheme` or `schemes`.
macro_rules! paths {
    ($whole:literal, $prefix:expr, $scheme:literal) => {
        (
            $whole,
            [
                concat!($prefix, "id"),
                concat!($prefix, "url"),
                concat!($prefix, "token"),
                concat!($prefix, "authentication"),
                concat!($prefix, "authentication.", $scheme),
                concat!($prefix, "authentication.credentials"),
                concat!($prefix, "events"),
                concat!($prefix, "coalesce"),
                concat!($prefix, "headers"),
            ],
        )
    };
    ($whole:literal, $scheme:literal) => {
        paths!($whole, concat!($whole, "."), $scheme)
    };
}

const FLAT: MemberPaths = paths!("params", "", "scheme");
const OLD: MemberPaths = paths!("pushNotificationConfig", "schemes");
const OF_SCOPE: MemberPaths = paths!("config", "schemes");
const INLINE_V1: MemberPaths = paths!("configuration.taskPushNotificationConfig", "scheme");
const INLINE_V03: MemberPaths = paths!("configuration.pushNotificationConfig", "schemes");
const INLINE_V01: MemberPaths = paths!("pushNotification", "schemes");

impl ConfigPosition {
    /// The configuration in a call that sets it.
    pub const fn of_set(form: PushForm) -> ConfigPosition {
        ConfigPosition { form, is_inline: false }
    }

    /// The configuration next to a message.
    pub const fn of_message(form: PushForm) -> ConfigPosition {
        ConfigPosition { form, is_inline: true }
    }

    /// The path of the configuration itself; in a 1.0 call that sets it, the params.
    pub const fn whole(self) -> &'static str {
        self.paths().0
    }

    /// The path of a member, given by its 1.0 name.
    pub fn path(self, member: &'static str) -> &'static str {
        let at = FLAT.1.iter().position(|name| *name == member);
        at.map_or(member, |at| self.paths().1[at])
    }

    const fn paths(self) -> &'static MemberPaths {
        match (self.is_inline, self.form) {
            (false, PushForm::StreamResponse) => &FLAT,
            (false, PushForm::Task03 | PushForm::Task01) => &OLD,
            (false, PushForm::EvoAi) => &OF_SCOPE,
            (true, PushForm::StreamResponse) => &INLINE_V1,
            (true, PushForm::Task03 | PushForm::EvoAi) => &INLINE_V03,
            (true, PushForm::Task01) => &INLINE_V01,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_member_paths_follow_the_callers_dialect() {
        const SCHEME: &str = "authentication.scheme";
        for (position, scheme) in [
            (ConfigPosition::of_set(PushForm::StreamResponse), SCHEME),
            (ConfigPosition::of_set(PushForm::EvoAi), "config.authentication.schemes"),
            (
                ConfigPosition::of_message(PushForm::Task01),
                "pushNotification.authentication.schemes",
            ),
        ] {
            assert_eq!(position.path(SCHEME), scheme);
        }
        for form in [PushForm::Task03, PushForm::Task01, PushForm::EvoAi] {
            for position in [ConfigPosition::of_set(form), ConfigPosition::of_message(form)] {
                assert_eq!(position.path("url"), format!("{}.url", position.whole()));
            }
        }
        let inline = ConfigPosition::of_message(PushForm::StreamResponse);
        assert_eq!(inline.path("events"), format!("{}.events", inline.whole()));
        // Any other member keeps its name.
        assert_eq!(inline.path("taskId"), "taskId");
    }
}
