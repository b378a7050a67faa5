//! `/`: all three generations of the specification side by side (wire §1.3, Appendix B step 2).
//!
//! PascalCase names are 1.0, `message/*` and `agent/*` are 0.2 and 0.3, `tasks/send*` is 0.1. The
//! three names that 0.1 and 0.3 share are answered in the generation that created the task.

use crate::model::Op;

use super::{Dialect, Method, Quirks, Routes, method, rest, tutorial, v01, v1, v03};

/// The specification.
pub static DIALECT: Dialect = Dialect {
    name: "standard",
    methods: METHODS,
    quirks: Quirks::NONE,
    routes: Routes {
        by_name: Some("/agents/"),
        tenants: Some("/tenants/"),
        rest: &[&rest::V1, &rest::V03],
        ..Routes::NONE
    },
};

const fn by_task(name: &'static str, op: Op) -> Method {
    Method { name, op, wire: &v03::WIRE, by_task: true }
}

const METHODS: &[Method] = &[
    method("SendMessage", Op::Send, &v1::WIRE),
    method("SendStreamingMessage", Op::Stream, &v1::WIRE),
    method("GetTask", Op::Get, &v1::WIRE),
    method("ListTasks", Op::List, &v1::WIRE),
    method("CancelTask", Op::Cancel, &v1::WIRE),
    method("SubscribeToTask", Op::Subscribe, &v1::WIRE),
    method("message/send", Op::Send, &v03::WIRE),
    method("message/stream", Op::Stream, &v03::WIRE),
    by_task("tasks/get", Op::Get),
    by_task("tasks/cancel", Op::Cancel),
    by_task("tasks/resubscribe", Op::Subscribe),
    method("tasks/send", Op::Send, &v01::WIRE),
    method("tasks/sendSubscribe", Op::Stream, &v01::WIRE),
    method("CreateTaskPushNotificationConfig", Op::PushSet, &v1::WIRE),
    method("GetTaskPushNotificationConfig", Op::PushGet, &v1::WIRE),
    method("ListTaskPushNotificationConfigs", Op::PushList, &v1::WIRE),
    method("DeleteTaskPushNotificationConfig", Op::PushDelete, &v1::WIRE),
    method("GetExtendedAgentCard", Op::ExtendedCard, &v1::WIRE),
    method("tasks/pushNotificationConfig/set", Op::PushSet, &v03::WIRE),
    method("tasks/pushNotificationConfig/get", Op::PushGet, &v03::WIRE),
    method("tasks/pushNotificationConfig/list", Op::PushList, &v03::WIRE),
    method("tasks/pushNotificationConfig/delete", Op::PushDelete, &v03::WIRE),
    // 0.3.0 has both names.
    method("agent/getAuthenticatedExtendedCard", Op::ExtendedCard, &v03::WIRE),
    method("agent/authenticatedExtendedCard", Op::ExtendedCard, &v03::WIRE),
    method("tasks/pushNotification/set", Op::PushSet, &v01::WIRE),
    method("tasks/pushNotification/get", Op::PushGet, &v01::WIRE),
    // Not in a specification; Wire Appendix B: from the tutorial.
    method("task/subscribe", Op::Subscribe, &tutorial::WIRE),
];
