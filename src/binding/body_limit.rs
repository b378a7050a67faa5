//! The size limit of a body. The limit depends only on the path, so it is known before the body is
//! read.

use crate::{
    binding::{
        ServerConfig,
        route::{Route, path_of, route},
    },
    dialect::Dialect,
    http::{Head, Reject},
    limits::Limits,
    service::Service,
};

/// A length of this many times the limit is treated as a probe (`http::framing`).
const ABSURD: u64 = 100;

/// The refusal of a request because of its head, or because its body did not arrive in time.
#[derive(Clone, Copy)]
pub struct RequestRefusal {
    /// The HTTP status.
    pub status: u16,
    /// The error text of the answer.
    pub why: &'static str,
    /// The exceeded limit, if any.
    pub limit: Option<&'static str>,
}

impl RequestRefusal {
    /// The refusal of a body that stalled.
    pub const SLOW_BODY: RequestRefusal = RequestRefusal {
        status: 408,
        why: "the body did not arrive in time",
        limit: Some("body_idle_ms"),
    };

    /// A refusal not caused by a limit.
    pub const fn new(status: u16, why: &'static str) -> RequestRefusal {
        RequestRefusal { status, why, limit: None }
    }
}

impl From<Reject> for RequestRefusal {
    fn from(reject: Reject) -> RequestRefusal {
        let (status, why, limit) = (reject.status(), reject.reason(), reject.limit());
        RequestRefusal { status, why, limit }
    }
}

/// The size limit of a body, and the error for a larger one.
#[derive(Clone, Copy)]
pub struct BodyLimit {
    /// The limit in bytes.
    pub bytes_max: usize,
    /// The error text for a larger body.
    too_large: &'static str,
    absurd: &'static str,
    /// The name of the limit.
    name: &'static str,
}

impl BodyLimit {
    /// The limit of paths, unless the dialect defines another.
    pub fn ordinary(limits: &Limits) -> BodyLimit {
        BodyLimit {
            bytes_max: limits.body_bytes_max,
            too_large: Reject::BodyTooLarge.reason(),
            absurd: Reject::LengthAbsurd.reason(),
            name: "body_bytes_max",
        }
    }

    /// The smallest limit of all paths. For a smaller body the path need not be examined.
    #[inline(always)]
    pub fn least(limits: &Limits) -> usize {
        limits.body_bytes_max.min(limits.evo_ai_body_bytes_max)
    }

    /// The limit for the body of a request at any path.
    #[cold]
    pub fn of(config: &ServerConfig, service: &dyn Service, head: &Head<'_>) -> BodyLimit {
        match route(config, service, path_of(head)) {
            Route::Rpc(target) => BodyLimit::in_dialect(target.endpoint.dialect, &config.limits),
            _ => BodyLimit::ordinary(&config.limits),
        }
    }

    /// The limit for the body of a call in this dialect.
    pub fn in_dialect(dialect: &Dialect, limits: &Limits) -> BodyLimit {
        let Some(body) = dialect.quirks.body else { return BodyLimit::ordinary(limits) };
        let bytes_max = (body.bytes_max)(limits);
        let name = body.name;
        BodyLimit { bytes_max, too_large: body.too_large, absurd: body.absurd, name }
    }

    /// The refusal of a body of this length, if it is too large.
    pub fn refusal(&self, length: u64) -> Option<RequestRefusal> {
        let most = self.bytes_max as u64;
        if length > most.saturating_mul(ABSURD) {
            let (status, limit) = (Reject::LengthAbsurd.status(), Some(self.name));
            return Some(RequestRefusal { status, why: self.absurd, limit });
        }
        (length > most).then(|| self.too_large())
    }

    /// The refusal of a body that is too large.
    pub fn too_large(&self) -> RequestRefusal {
        let (status, limit) = (Reject::BodyTooLarge.status(), Some(self.name));
        RequestRefusal { status, why: self.too_large, limit }
    }
}
