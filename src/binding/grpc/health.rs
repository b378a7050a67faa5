//! The health checking protocol of gRPC: every service is served until the server drains.

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
    /// New tasks are refused: the server is about to end.
    No = 2,
    /// There is no such service.
    Unknown = 3,
}

/// How the service that a `HealthCheckRequest` names is.
///
/// # Errors
/// `INVALID_ARGUMENT` when the bytes are no such message.
pub fn check(message: &[u8], is_draining: bool) -> Result<Serving, Status> {
    let wrong = |_| Status::new(Code::InvalidArgument, "the message is not what its type says");
    let mut service = "";
    for field in Fields(message) {
        if let (health_check_request::SERVICE, value) = field.map_err(wrong)? {
            service = value.text().map_err(wrong)?;
        }
    }
    // The empty name asks for the server as a whole.
    Ok(match (service.is_empty() || SERVICES.contains(&service), is_draining) {
        (false, _) => Serving::Unknown,
        (true, true) => Serving::No,
        (true, false) => Serving::Yes,
    })
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
    fn services_are_known_by_name() {
        let ask = |name: &str| {
            let mut message = Vec::new();
            Writer(&mut message).bytes(health_check_request::SERVICE, name.as_bytes());
            check(&message, false)
        };
        assert_eq!(ask(""), Ok(Serving::Yes));
        assert_eq!(ask("lf.a2a.v1.A2AService"), Ok(Serving::Yes));
        assert_eq!(ask("x"), Ok(Serving::Unknown));
        assert_eq!(check(b"", true), Ok(Serving::No));
        assert_eq!(check(b"\x08", true).unwrap_err().code, Code::InvalidArgument);
    }
}
