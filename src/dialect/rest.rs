//! The HTTP+JSON bindings: what each generation that has one calls its operations (wire §3).
//!
//! A binding is a row for each operation, as a dialect has rows for its methods: 1.0 sends the same
//! JSON as over JSON-RPC, 0.3 the ProtoJSON of its own proto. Paths belong to `binding`.

use crate::{
    fault::Fault,
    model::{Generation, Op},
};

use super::{Method, fault, method, v1, v03_rest};

/// One generation's way of speaking HTTP+JSON.
pub struct HttpJson {
    /// The generation.
    pub generation: Generation,
    /// A row for each operation.
    methods: &'static [Method],
    /// HTTP status of a fault.
    pub status: fn(&Fault) -> u16,
    /// Appends the whole body of an error that is answered with this HTTP status.
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
    /// The row of an operation; both generations have one for each.
    pub fn method(&self, op: Op) -> Option<&'static Method> {
        self.methods.iter().find(|method| method.op == op)
    }
}

const METHODS_V1: &[Method] = &[
    method("GetTask", Op::Get, &v1::REST),
    method("SendMessage", Op::Send, &v1::REST),
    method("SendStreamingMessage", Op::Stream, &v1::REST),
    method("SubscribeToTask", Op::Subscribe, &v1::REST),
    method("ListTasks", Op::List, &v1::REST),
    method("CancelTask", Op::Cancel, &v1::REST),
    method("CreateTaskPushNotificationConfig", Op::PushSet, &v1::REST),
    method("GetTaskPushNotificationConfig", Op::PushGet, &v1::REST),
    method("ListTaskPushNotificationConfigs", Op::PushList, &v1::REST),
    method("DeleteTaskPushNotificationConfig", Op::PushDelete, &v1::REST),
    method("GetExtendedAgentCard", Op::ExtendedCard, &v1::REST),
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
