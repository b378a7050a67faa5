//! The HTTP+JSON bindings: the operations of each generation with such a binding (wire §3).
//!
//! A binding has a row for each operation, like the rows of a dialect's methods. 1.0 sends the same
//! JSON as over JSON-RPC, 0.3 the ProtoJSON of its own proto. The paths are in `binding`.

use crate::{
    fault::Fault,
    model::{Generation, Op, PushReply, Reply},
};

use super::{Encode, Method, Wire, WriteCx, fault, method, v1, v03_rest};

/// The HTTP+JSON binding of one generation.
pub struct HttpJson {
    /// The generation.
    pub generation: Generation,
    /// A row for each operation.
    methods: &'static [Method],
    /// HTTP status of a fault.
    pub status: fn(&Fault) -> u16,
    /// Appends the whole body of an error with this HTTP status.
    pub fault: fn(&mut Vec<u8>, &Fault, u16),
}

/// 1.0 (A2A 1.0 §11).
pub static V1: HttpJson = HttpJson {
    generation: Generation::V1,
    methods: METHODS_V1,
    status: |fault| fault.kind.http(),
    fault: fault::rest_v1,
};

/// 0.3, below `/v1` (A2A 0.3 §3.2.3).
pub static V03: HttpJson = HttpJson {
    generation: Generation::V03,
    methods: METHODS_V03,
    status: |fault| fault.kind.row().http_v03,
    fault: |out, fault, _| fault::rest_v03(out, fault),
};

impl HttpJson {
    /// The row of an operation; both generations have a row for each operation.
    pub fn method(&self, op: Op) -> Option<&'static Method> {
        self.methods.iter().find(|method| method.op == op)
    }
}

/// The JSON of 1.0, with errors in the format of AIP-193 (A2A 1.0 §11.6).
static V1_WIRE: Wire = Wire {
    decode: v1::WIRE.decode,
    encode: Encode { reply: v1_reply, fault: v1_fault, ..v1::WIRE.encode },
    #[cfg(feature = "client")]
    calls: v1::WIRE.calls,
};

fn v1_reply(out: &mut Vec<u8>, reply: &Reply<'_>, cx: &WriteCx<'_>) {
    match reply {
        // Clients parse the body, so it must not be empty.
        Reply::Push(PushReply::Deleted) => out.extend_from_slice(b"{}"),
        _ => v1::reply(out, reply, cx),
    }
}

fn v1_fault(out: &mut Vec<u8>, fault: &Fault, _cx: &WriteCx<'_>) {
    fault::rest_v1(out, fault, fault.kind.row().status.http());
}

const METHODS_V1: &[Method] = &[
    method("GetTask", Op::Get, &V1_WIRE),
    method("SendMessage", Op::Send, &V1_WIRE),
    method("SendStreamingMessage", Op::Stream, &V1_WIRE),
    method("SubscribeToTask", Op::Subscribe, &V1_WIRE),
    method("ListTasks", Op::List, &V1_WIRE),
    method("CancelTask", Op::Cancel, &V1_WIRE),
    method("CreateTaskPushNotificationConfig", Op::PushSet, &V1_WIRE),
    method("GetTaskPushNotificationConfig", Op::PushGet, &V1_WIRE),
    method("ListTaskPushNotificationConfigs", Op::PushList, &V1_WIRE),
    method("DeleteTaskPushNotificationConfig", Op::PushDelete, &V1_WIRE),
    method("GetExtendedAgentCard", Op::ExtendedCard, &V1_WIRE),
];

const METHODS_V03: &[Method] = &[
    method("GetTask", Op::Get, &v03_rest::WIRE),
    method("SendMessage", Op::Send, &v03_rest::WIRE),
    method("SendStreamingMessage", Op::Stream, &v03_rest::WIRE),
    method("TaskSubscription", Op::Subscribe, &v03_rest::WIRE),
    method("ListTasks", Op::List, &v03_rest::WIRE),
    method("CancelTask", Op::Cancel, &v03_rest::WIRE),
    method("CreateTaskPushNotificationConfig", Op::PushSet, &v03_rest::WIRE),
    method("GetTaskPushNotificationConfig", Op::PushGet, &v03_rest::WIRE),
    method("ListTaskPushNotificationConfig", Op::PushList, &v03_rest::WIRE),
    method("DeleteTaskPushNotificationConfig", Op::PushDelete, &v03_rest::WIRE),
    method("GetAgentCard", Op::ExtendedCard, &v03_rest::WIRE),
];
