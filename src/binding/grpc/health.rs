//! The health checking protocol of gRPC: every service is `SERVING` until the server drains.

use crate::pb::{Fields, Writer};

use super::{
    Code, SERVICES, Status,
    fields::other::{health_check_request, health_check_response},
    frame,
};

/// `HealthCheckResponse.ServingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Serving {
    /// Calls are answered.
    Yes = 1,
    /// The server shuts down; new tasks are rejected.
    No = 2,
    /// Unknown service.
    Unknown = 3,
}

impl Serving {
    /// The status of a service.
    pub fn of(exists: bool, is_draining: bool) -> Serving {
        match (exists, is_draining) {
            (false, _) => Serving::Unknown,
            (true, true) => Serving::No,
            (true, false) => Serving::Yes,
        }
    }
}

/// Whether the service in a `HealthCheckRequest` exists.
///
/// # Errors
/// `INVALID_ARGUMENT` when the bytes are not a `HealthCheckRequest`.
pub fn is_known(message: &[u8]) -> Result<bool, Status> {
    let wrong =
        |_| Status::new(Code::InvalidArgument, "the message does not match its protobuf type");
    let mut service = "";
    for field in Fields(message) {
        if let (health_check_request::SERVICE, value) = field.map_err(wrong)? {
            service = value.text().map_err(wrong)?;
        }
    }
    // The empty name stands for the whole server.
    Ok(service.is_empty() || SERVICES.contains(&service))
}

/// The status for an unknown service.
pub fn no_service() -> Status {
    Status::new(Code::NotFound, "no such service")
}

/// Appends a framed `HealthCheckResponse`.
pub fn push(out: &mut Vec<u8>, serving: Serving) {
    let frame = frame::begin(out);
    Writer(out).number(health_check_response::STATUS, serving as u64);
    frame::finish(out, frame);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_check_finds_service_by_name() {
        let check = |name: &str| {
            let mut message = Vec::new();
            Writer(&mut message).bytes(health_check_request::SERVICE, name.as_bytes());
            is_known(&message)
        };
        assert_eq!(check(""), Ok(true));
        assert_eq!(check("lf.a2a.v1.A2AService"), Ok(true));
        assert_eq!(check("x"), Ok(false));
        assert_eq!(is_known(b"\x08").unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn service_reports_serving_until_server_drains() {
        assert_eq!(Serving::of(true, false), Serving::Yes);
        assert_eq!(Serving::of(true, true), Serving::No);
        assert_eq!(Serving::of(false, true), Serving::Unknown);
    }
}
