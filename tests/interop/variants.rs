//! The pairs of binding and generation, and the features that each lacks.

use super::{
    model::{Form, Gen, V01, V1, V03},
    place::Endpoint,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    JsonRpc,
    Rest,
    WebSocket,
    Grpc,
}

/// The protocol that carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    Http1,
    /// With prior knowledge.
    Http2,
}

/// The side that speaks the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The scenarios themselves, byte by byte.
    Hand,
    /// Our own client.
    Client,
}

/// A pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    pub binding: Binding,
    pub generation: Gen,
    pub carrier: Carrier,
    pub speaker: Speaker,
}

const fn variant(binding: Binding, generation: Gen) -> Variant {
    let carrier = match binding {
        Binding::JsonRpc | Binding::Rest | Binding::WebSocket => Carrier::Http1,
        Binding::Grpc => Carrier::Http2,
    };
    Variant { binding, generation, carrier, speaker: Speaker::Hand }
}

const fn http2(binding: Binding, generation: Gen) -> Variant {
    Variant { carrier: Carrier::Http2, ..variant(binding, generation) }
}

/// Every pair: 0.1 was JSON-RPC only (wire §1.1), which a WebSocket carries, too; REST and gRPC
/// begin with 0.2 and 0.3. HTTP/2 carries all that HTTP/1.1 does.
#[rustfmt::skip]
pub const VARIANTS: &[Variant] = &[
    variant(Binding::JsonRpc, V01),
    variant(Binding::JsonRpc, V03),
    variant(Binding::JsonRpc, V1),
    variant(Binding::Rest, V03),
    variant(Binding::Rest, V1),
    variant(Binding::WebSocket, V01),
    variant(Binding::WebSocket, V03),
    variant(Binding::WebSocket, V1),
    variant(Binding::Grpc, V03),
    variant(Binding::Grpc, V1),
    http2(Binding::JsonRpc, V01),
    http2(Binding::JsonRpc, V03),
    http2(Binding::JsonRpc, V1),
    http2(Binding::Rest, V03),
    http2(Binding::Rest, V1),
];

/// Every pair by hand, then every pair by our client.
pub fn every_way() -> impl Iterator<Item = Variant> + Clone {
    let by_client = |variant: &Variant| Variant { speaker: Speaker::Client, ..*variant };
    VARIANTS.iter().copied().chain(VARIANTS.iter().map(by_client))
}

/// The observer of the scenarios, in addition to the pair under test.
pub const OBSERVER: Variant = variant(Binding::JsonRpc, V1);

impl Variant {
    /// JSON-RPC messages, over any carrier.
    pub fn is_rpc(self) -> bool {
        match self.binding {
            Binding::JsonRpc | Binding::WebSocket => true,
            Binding::Rest | Binding::Grpc => false,
        }
    }

    /// Its entry in a card (A2A 1.0 §4.4.6): binding, version and URL. Cards have no 0.1, and one
    /// entry for all carriers of a binding.
    pub fn interface(self, endpoint: &Endpoint) -> Option<(&'static str, &'static str, String)> {
        let version = match self.generation {
            V01 => return None,
            V03 => "0.3",
            V1 => "1.0",
        };
        if self.carrier != variant(self.binding, self.generation).carrier {
            return None;
        }
        let (scheme, addr) = (endpoint.scheme(), endpoint.addr);
        let (binding, url) = match (self.binding, self.generation) {
            (Binding::JsonRpc, _) => ("JSONRPC", format!("{scheme}://{addr}/")),
            // Wire §3.1: the paths of 0.3 begin with /v1, its URL does not end with it.
            (Binding::Rest, _) => ("HTTP+JSON", format!("{scheme}://{addr}")),
            (Binding::Grpc, _) => ("GRPC", addr.to_string()),
            (Binding::WebSocket, _) => {
                let scheme = if scheme == "https" { "wss" } else { "ws" };
                // A2A 1.0 §5.8: a URI; the specification's guide shows this one.
                ("https://a2a-protocol.org/bindings/websocket", format!("{scheme}://{addr}/"))
            }
        };
        Some((binding, version, url))
    }

    /// JSON bodies, which can have members that a protobuf cannot.
    pub fn is_json(self) -> bool {
        match self.binding {
            Binding::JsonRpc | Binding::Rest | Binding::WebSocket => true,
            Binding::Grpc => false,
        }
    }

    /// Whether a refusal can come in place of a stream's head (wire §3.5); a WebSocket has only
    /// messages, and gRPC reports the status after them. Our client reports it in place of the
    /// first event.
    pub fn heads_streams(self) -> bool {
        if self.speaker == Speaker::Client {
            return false;
        }
        match self.binding {
            Binding::JsonRpc | Binding::Rest => true,
            Binding::WebSocket | Binding::Grpc => false,
        }
    }

    /// Wire §2.4: the field of an invalid parameter is in the details.
    pub fn names_fields(self) -> bool {
        match self.binding {
            Binding::JsonRpc | Binding::Rest | Binding::WebSocket => true,
            // gRPC of 0.3 has no details.
            Binding::Grpc => self.generation == V1,
        }
    }

    /// The form of values between a scenario and the link.
    pub fn value_form(self, form: Form) -> Form {
        match self.speaker {
            Speaker::Hand => form,
            Speaker::Client => Form::Canonical,
        }
    }

    /// The form of its requests, and of their answers.
    pub fn form(self) -> Form {
        super::wire_format::form_of(self.is_rpc(), self.generation, self.generation)
    }

    /// The form of a task in the answer to a read, a cancel or a subscription.
    pub fn form_for(self, made: Gen) -> Form {
        super::wire_format::form_of(self.is_rpc(), self.generation, made)
    }

    /// Wire §1.3: 1.0 introduced the list. The text of 0.3 mentions it for REST and gRPC; it has a
    /// path for REST (wire §3.1) and no rpc, and JSON-RPC has no such method.
    pub fn lists(self) -> bool {
        self.generation == V1 || (self.binding, self.generation) == (Binding::Rest, V03)
    }

    /// Wire §1.5: `tasks/send` of 0.1 cannot request an immediate answer.
    pub fn can_return_at_once(self) -> bool {
        self.generation != V01
    }

    /// Wire §1.5: the `history_length` of 0.3's proto has no presence: 0 means unset.
    pub fn can_request_no_history(self) -> bool {
        (self.binding, self.generation) != (Binding::Grpc, V03)
    }

    /// Wire §4.1: `GetAgentCard` of 0.3's proto is the one rpc for cards, the public one included.
    pub fn has_one_card(self) -> bool {
        (self.binding, self.generation) == (Binding::Grpc, V03)
    }

    /// Wire §5.4: only a client of 0.1 names its tasks.
    pub fn names_tasks(self) -> bool {
        self.generation == V01
    }

    /// A2A 1.0 §3.1.6: a subscription lasts until the task ends; before 1.0 a stream pauses with
    /// its task (wire §5.1, "closes at").
    pub fn subscription_outlasts_input(self) -> bool {
        self.generation == V1
    }

    /// A2A 1.0 §3.3.1: cancel is idempotent; before, a second one is TaskNotCancelable.
    pub fn cancels_twice(self) -> bool {
        self.generation == V1
    }

    /// Wire §1.9: 0.1 has only tasks, so a direct message is a completed task.
    pub fn has_messages(self) -> bool {
        self.generation != V01
    }
}
