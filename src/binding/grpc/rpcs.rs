//! The table of all paths and their rpcs (wire §4.1), with rows like those of the JSON-RPC methods.

use crate::{
    dialect::{Method, Wire},
    model::Op,
};

use super::wire::{self, DecodeMessage};

/// An operation of A2A as an rpc.
pub type GrpcMethod = Method<DecodeMessage>;

/// The rpc at a path.
#[derive(Clone, Copy)]
pub enum Rpc {
    /// An operation of A2A.
    A2a(&'static GrpcMethod),
    /// `grpc.health.v1.Health/Check`.
    HealthCheck,
    /// `grpc.health.v1.Health/Watch`.
    HealthWatch,
    /// `ServerReflectionInfo` of `v1` or `v1alpha`.
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

/// The services of A2A from which a client chooses.
#[cfg(any(feature = "client", feature = "internals"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcService {
    /// `lf.a2a.v1`: 1.0.
    V1,
    /// `a2a.v1`: 0.3.
    V03,
    /// `a2a.v1.A2aService`: 1.0 in JSON (dialect a2a_rust).
    Json,
}

#[cfg(any(feature = "client", feature = "internals"))]
impl GrpcService {
    /// The name of the service.
    pub fn name(self) -> &'static str {
        match self {
            GrpcService::V1 => V1,
            GrpcService::V03 => V03,
            GrpcService::Json => JSON,
        }
    }

    /// The name of the service's rpc for an operation, if it has one.
    pub fn rpc(self, op: Op) -> Option<&'static str> {
        let table = match self {
            GrpcService::V1 => NEW,
            GrpcService::V03 => OLD,
            GrpcService::Json => IN_JSON,
        };
        table.iter().find(|method| method.op == op).map(|method| method.name)
    }
}

/// The rpc at `path`, which is `/service/rpc`.
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
    table.iter().find(|method| method.name == name).map(Rpc::A2a)
}

const fn row(name: &'static str, op: Op, wire: &'static Wire<DecodeMessage>) -> GrpcMethod {
    Method { name, op, wire, by_task: false }
}

const fn eleven(wire: &'static Wire<DecodeMessage>) -> [GrpcMethod; 11] {
    [
        row("SendMessage", Op::Send, wire),
        row("SendStreamingMessage", Op::Stream, wire),
        row("GetTask", Op::Get, wire),
        row("ListTasks", Op::List, wire),
        row("CancelTask", Op::Cancel, wire),
        row("SubscribeToTask", Op::Subscribe, wire),
        row("CreateTaskPushNotificationConfig", Op::PushSet, wire),
        row("GetTaskPushNotificationConfig", Op::PushGet, wire),
        row("ListTaskPushNotificationConfigs", Op::PushList, wire),
        row("DeleteTaskPushNotificationConfig", Op::PushDelete, wire),
        row("GetExtendedAgentCard", Op::ExtendedCard, wire),
    ]
}

static NEW: &[GrpcMethod] = &eleven(&wire::V1);
static IN_JSON: &[GrpcMethod] = &eleven(&wire::JSON);
static OLD: &[GrpcMethod] = &[
    row("SendMessage", Op::Send, &wire::V03),
    row("SendStreamingMessage", Op::Stream, &wire::V03),
    row("GetTask", Op::Get, &wire::V03),
    row("CancelTask", Op::Cancel, &wire::V03),
    row("TaskSubscription", Op::Subscribe, &wire::V03),
    row("CreateTaskPushNotificationConfig", Op::PushSet, &wire::V03),
    row("GetTaskPushNotificationConfig", Op::PushGet, &wire::V03),
    row("ListTaskPushNotificationConfig", Op::PushList, &wire::V03),
    row("DeleteTaskPushNotificationConfig", Op::PushDelete, &wire::V03),
    row("GetAgentCard", Op::ExtendedCard, &wire::V03),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rpc_path_maps_to_its_table_row() {
        for (service, table) in [(V1, NEW), (JSON, IN_JSON), (V03, OLD)] {
            for row in table {
                let found = rpc(&format!("/{service}/{}", row.name));
                let Some(Rpc::A2a(method)) = found else { panic!("{service}/{}", row.name) };
                assert!(std::ptr::eq(method, row), "{service}/{}", row.name);
            }
        }
        assert!(matches!(rpc("/grpc.health.v1.Health/Watch"), Some(Rpc::HealthWatch)));
        let none = ["", "/", "//", "/lf.a2a.v1.A2AService", "/lf.a2a.v1.A2AService/", "/a/b"];
        assert!(none.iter().all(|path| rpc(path).is_none()));
    }
}
