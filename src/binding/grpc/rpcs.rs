//! Every path that is served, and what is behind it (wire §4.1).

use crate::{
    dialect::{self, Method},
    fault::{Fault, FaultKind},
    model::Generation,
};

/// What the messages of a service are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `lf.a2a.v1`: 1.0.
    V1,
    /// `a2a.v1`: 0.3.
    V03,
    /// `a2a.v1.A2aService`: 1.0 in JSON (dialect a2a_rust).
    Json,
}

/// An operation of A2A as an rpc.
#[derive(Debug)]
pub struct A2aRpc {
    /// What its messages are.
    pub family: Family,
    /// The method of JSON-RPC that does the same.
    method: &'static str,
}

impl A2aRpc {
    /// The method of JSON-RPC that does the same: its operation, and the version it needs.
    pub(super) fn method(&self) -> Result<&'static Method, Fault> {
        let method = dialect::STANDARD.method(self.method.as_bytes());
        method.ok_or_else(|| FaultKind::MethodNotFound.into())
    }

    /// The generation in which its errors are said.
    pub fn generation(&self) -> Generation {
        match self.family {
            Family::V1 | Family::Json => Generation::V1,
            Family::V03 => Generation::V03,
        }
    }
}

/// What is behind a path.
#[derive(Clone, Copy, Debug)]
pub enum Rpc {
    /// An operation of A2A.
    A2a(&'static A2aRpc),
    /// `grpc.health.v1.Health/Check`.
    HealthCheck,
    /// `grpc.health.v1.Health/Watch`.
    HealthWatch,
    /// `ServerReflectionInfo` of either version.
    Reflection,
}

/// The names of all services, for health and reflection.
pub const SERVICES: [&str; 6] =
    [V1, V03, JSON, HEALTH, "grpc.reflection.v1.ServerReflection", REFLECTION_ALPHA];

const V1: &str = "lf.a2a.v1.A2AService";
const V03: &str = "a2a.v1.A2AService";
const JSON: &str = "a2a.v1.A2aService";
const HEALTH: &str = "grpc.health.v1.Health";
const REFLECTION_ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";

/// What is behind `path`, which is `/service/rpc`.
pub fn rpc(path: &str) -> Option<Rpc> {
    let (service, name) = path.strip_prefix('/')?.split_once('/')?;
    let table = match service {
        V1 => NEW,
        V03 => OLD,
        JSON => IN_JSON,
        HEALTH => {
            return match name {
                "Check" => Some(Rpc::HealthCheck),
                "Watch" => Some(Rpc::HealthWatch),
                _ => None,
            };
        }
        _ if SERVICES[4..].contains(&service) => {
            return (name == "ServerReflectionInfo").then_some(Rpc::Reflection);
        }
        _ => return None,
    };
    table.iter().find(|(known, _)| *known == name).map(|(_, rpc)| Rpc::A2a(rpc))
}

type Row = (&'static str, A2aRpc);

/// 1.0 names its rpcs as its methods.
const fn same(family: Family, method: &'static str) -> Row {
    (method, A2aRpc { family, method })
}

const fn old(name: &'static str, method: &'static str) -> Row {
    (name, A2aRpc { family: Family::V03, method })
}

const fn eleven(family: Family) -> [Row; 11] {
    [
        same(family, "SendMessage"),
        same(family, "SendStreamingMessage"),
        same(family, "GetTask"),
        same(family, "ListTasks"),
        same(family, "CancelTask"),
        same(family, "SubscribeToTask"),
        same(family, "CreateTaskPushNotificationConfig"),
        same(family, "GetTaskPushNotificationConfig"),
        same(family, "ListTaskPushNotificationConfigs"),
        same(family, "DeleteTaskPushNotificationConfig"),
        same(family, "GetExtendedAgentCard"),
    ]
}

const NEW: &[Row] = &eleven(Family::V1);
const IN_JSON: &[Row] = &eleven(Family::Json);
const OLD: &[Row] = &[
    old("SendMessage", "message/send"),
    old("SendStreamingMessage", "message/stream"),
    old("GetTask", "tasks/get"),
    old("CancelTask", "tasks/cancel"),
    old("TaskSubscription", "tasks/resubscribe"),
    old("CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/set"),
    old("GetTaskPushNotificationConfig", "tasks/pushNotificationConfig/get"),
    old("ListTaskPushNotificationConfig", "tasks/pushNotificationConfig/list"),
    old("DeleteTaskPushNotificationConfig", "tasks/pushNotificationConfig/delete"),
    old("GetAgentCard", "agent/getAuthenticatedExtendedCard"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rpc_has_a_method() {
        for (name, row) in NEW.iter().chain(IN_JSON).chain(OLD) {
            assert!(row.method().is_ok(), "{name}");
            assert_eq!(row.method().unwrap().generation(), row.generation(), "{name}");
        }
        assert!(matches!(rpc("/grpc.health.v1.Health/Watch"), Some(Rpc::HealthWatch)));
        let none = ["", "/", "//", "/lf.a2a.v1.A2AService", "/lf.a2a.v1.A2AService/", "/a/b"];
        assert!(none.iter().all(|path| rpc(path).is_none()));
    }
}
