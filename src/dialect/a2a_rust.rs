//! a2a-rust: 1.0 with strict JSON-RPC 2.0 (wire §8).
//!
//! Its documentation shows SendMessage answered with a bare task; its code wraps the task as in
//! 1.0, and this dialect follows the code. Notifications get no answer. A media type other than
//! JSON is rejected with 415.

use crate::model::Op;

use super::{Dialect, Method, Quirks, Routes, method, rest, v1};

/// a2a-rust.
pub static DIALECT: Dialect = Dialect {
    name: "a2a_rust",
    methods: METHODS,
    quirks: Quirks { silent_notifications: true, media_http: 415, ..Quirks::NONE },
    routes: Routes {
        tenants: Some("/tenants/"),
        rest_tenant: "/tenants/",
        rest: &[&rest::V1],
        ..Routes::NONE
    },
};

const METHODS: &[Method] = &[
    method("SendMessage", Op::Send, &v1::WIRE),
    method("SendStreamingMessage", Op::Stream, &v1::WIRE),
    method("GetTask", Op::Get, &v1::WIRE),
    method("ListTasks", Op::List, &v1::WIRE),
    method("CancelTask", Op::Cancel, &v1::WIRE),
    method("SubscribeToTask", Op::Subscribe, &v1::WIRE),
    method("CreateTaskPushNotificationConfig", Op::PushSet, &v1::WIRE),
    method("GetTaskPushNotificationConfig", Op::PushGet, &v1::WIRE),
    method("ListTaskPushNotificationConfigs", Op::PushList, &v1::WIRE),
    method("DeleteTaskPushNotificationConfig", Op::PushDelete, &v1::WIRE),
    method("GetExtendedAgentCard", Op::ExtendedCard, &v1::WIRE),
];
