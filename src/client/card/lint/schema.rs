//! The members of cards and their types, as in the proto of 1.0 and in the schemas of 0.3 and 0.1
//! (wire §1.6).

/// The type of a member.
#[derive(Clone, Copy)]
pub(super) enum MemberType {
    Text,
    Flag,
    /// An array of strings.
    Texts,
    /// A map of objects by name, or an object with any members.
    Object,
    Inner(&'static CardTable),
    /// An array of objects with this table.
    List(&'static CardTable),
    /// An array; another rule checks its entries.
    Array,
}

/// Whether a member is required.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberNeed {
    /// Required, and not empty.
    Filled,
    /// Required; an empty value gives a warning.
    There,
    /// Optional.
    Free,
}

pub(super) struct MemberRule {
    pub name: &'static str,
    pub kind: MemberType,
    pub need: MemberNeed,
}

/// An object: the clause that defines it, and its members.
pub(super) struct CardTable {
    pub clause: &'static str,
    pub members: &'static [MemberRule],
}

const fn filled(name: &'static str, kind: MemberType) -> MemberRule {
    MemberRule { name, kind, need: MemberNeed::Filled }
}

const fn there(name: &'static str, kind: MemberType) -> MemberRule {
    MemberRule { name, kind, need: MemberNeed::There }
}

const fn free(name: &'static str, kind: MemberType) -> MemberRule {
    MemberRule { name, kind, need: MemberNeed::Free }
}

use MemberType::{Array, Flag, Inner, List, Object, Text, Texts};

pub(super) static V1_CARD: CardTable = CardTable {
    clause: "A2A 1.0 §4.4.1",
    members: &[
        filled("name", Text),
        filled("description", Text),
        filled("supportedInterfaces", List(&V1_INTERFACE)),
        free("provider", Inner(&V1_PROVIDER)),
        filled("version", Text),
        free("documentationUrl", Text),
        filled("capabilities", Inner(&V1_CAPABILITIES)),
        free("securitySchemes", Object),
        free("securityRequirements", Array),
        there("defaultInputModes", Texts),
        there("defaultOutputModes", Texts),
        there("skills", List(&V1_SKILL)),
        free("signatures", List(&V1_SIGNATURE)),
        free("iconUrl", Text),
    ],
};

static V1_INTERFACE: CardTable = CardTable {
    clause: "A2A 1.0 §4.4.6",
    members: &[
        filled("url", Text),
        filled("protocolBinding", Text),
        free("tenant", Text),
        filled("protocolVersion", Text),
    ],
};

static V1_PROVIDER: CardTable = CardTable {
    clause: "A2A 1.0 §4.4.2",
    members: &[filled("url", Text), filled("organization", Text)],
};

static V1_CAPABILITIES: CardTable = CardTable {
    clause: "A2A 1.0 §4.4.3",
    members: &[
        free("streaming", Flag),
        free("pushNotifications", Flag),
        free("extensions", List(&V1_EXTENSION)),
        free("extendedAgentCard", Flag),
    ],
};

static V1_EXTENSION: CardTable = CardTable {
    clause: "A2A 1.0 §4.4.4",
    members: &[
        free("uri", Text),
        free("description", Text),
        free("required", Flag),
        free("params", Object),
    ],
};

static V1_SKILL: CardTable = CardTable {
    clause: "A2A 1.0 §4.4.5",
    members: &[
        filled("id", Text),
        filled("name", Text),
        filled("description", Text),
        there("tags", Texts),
        free("examples", Texts),
        free("inputModes", Texts),
        free("outputModes", Texts),
        free("securityRequirements", Array),
    ],
};

static V1_SIGNATURE: CardTable = CardTable {
    clause: "A2A 1.0 §4.4.7",
    members: &[filled("protected", Text), filled("signature", Text), free("header", Object)],
};

pub(super) static V03_CARD: CardTable = CardTable {
    clause: "A2A 0.3 §5.5",
    members: &[
        filled("name", Text),
        filled("description", Text),
        filled("url", Text),
        filled("version", Text),
        free("protocolVersion", Text),
        free("preferredTransport", Text),
        free("additionalInterfaces", List(&V03_INTERFACE)),
        free("provider", Inner(&V03_PROVIDER)),
        free("documentationUrl", Text),
        free("iconUrl", Text),
        filled("capabilities", Inner(&V03_CAPABILITIES)),
        free("securitySchemes", Object),
        free("security", Array),
        there("defaultInputModes", Texts),
        there("defaultOutputModes", Texts),
        there("skills", List(&V03_SKILL)),
        free("supportsAuthenticatedExtendedCard", Flag),
        free("signatures", List(&V03_SIGNATURE)),
    ],
};

static V03_INTERFACE: CardTable = CardTable {
    clause: "A2A 0.3 §5.5.5",
    members: &[filled("url", Text), filled("transport", Text)],
};

static V03_PROVIDER: CardTable = CardTable {
    clause: "A2A 0.3 §5.5.1",
    members: &[filled("url", Text), filled("organization", Text)],
};

static V03_CAPABILITIES: CardTable = CardTable {
    clause: "A2A 0.3 §5.5.2",
    members: &[
        free("streaming", Flag),
        free("pushNotifications", Flag),
        free("stateTransitionHistory", Flag),
        free("extensions", List(&V03_EXTENSION)),
    ],
};

static V03_EXTENSION: CardTable = CardTable {
    clause: "A2A 0.3 §5.5.2.1",
    members: &[
        filled("uri", Text),
        free("description", Text),
        free("required", Flag),
        free("params", Object),
    ],
};

static V03_SKILL: CardTable = CardTable {
    clause: "A2A 0.3 §5.5.4",
    members: &[
        filled("id", Text),
        filled("name", Text),
        filled("description", Text),
        there("tags", Texts),
        free("examples", Texts),
        free("inputModes", Texts),
        free("outputModes", Texts),
        free("security", Array),
    ],
};

static V03_SIGNATURE: CardTable = CardTable {
    clause: "A2A 0.3 §5.5.6",
    members: &[filled("protected", Text), filled("signature", Text), free("header", Object)],
};

pub(super) static V01_CARD: CardTable = CardTable {
    clause: "A2A 0.1, AgentCard",
    members: &[
        filled("name", Text),
        free("description", Text),
        filled("url", Text),
        filled("version", Text),
        free("provider", Inner(&V01_PROVIDER)),
        free("documentationUrl", Text),
        filled("capabilities", Inner(&V03_CAPABILITIES)),
        free("authentication", Inner(&V01_AUTHENTICATION)),
        free("defaultInputModes", Texts),
        free("defaultOutputModes", Texts),
        there("skills", List(&V01_SKILL)),
    ],
};

static V01_PROVIDER: CardTable = CardTable {
    clause: "A2A 0.1, AgentProvider",
    members: &[filled("organization", Text), free("url", Text)],
};

static V01_AUTHENTICATION: CardTable = CardTable {
    clause: "A2A 0.1, AgentAuthentication",
    members: &[there("schemes", Texts), free("credentials", Text)],
};

static V01_SKILL: CardTable = CardTable {
    clause: "A2A 0.1, AgentSkill",
    members: &[
        filled("id", Text),
        filled("name", Text),
        free("description", Text),
        free("tags", Texts),
        free("examples", Texts),
        free("inputModes", Texts),
        free("outputModes", Texts),
    ],
};

/// Members of older generations that a hybrid card has in addition to those of 1.0.
pub(super) const LEGACY: &[&str] = &[
    "url",
    "protocolVersion",
    "preferredTransport",
    "additionalInterfaces",
    "security",
    "supportsAuthenticatedExtendedCard",
    "stateTransitionHistory",
];
