//! How large a body may be: the path of a request says it, so it is known before any of the body is
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

/// A length that is so many times the limit is a probe (`http::framing`).
const ABSURD: u64 = 100;

/// Why a request is refused by its head, or because its body does not come.
#[derive(Clone, Copy)]
pub struct RequestRefusal {
    /// The HTTP status.
    pub status: u16,
    /// The sentence of the answer.
    pub why: &'static str,
    /// The limit that was hit, if it was one.
    pub limit: Option<&'static str>,
}

impl RequestRefusal {
    /// A body that stopped moving.
    pub const SLOW_BODY: RequestRefusal = RequestRefusal {
        status: 408,
        why: "the body did not arrive in time",
        limit: Some("body_idle_ms"),
    };

    /// A refusal that is due to no limit.
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

/// How large a body may be, and the error for one that is larger.
#[derive(Clone, Copy)]
pub struct BodyLimit {
    /// Bytes that it may have.
    pub bytes_max: usize,
    /// What a body is told that has more.
    too_large: &'static str,
    absurd: &'static str,
    /// The name of the limit.
    name: &'static str,
}

impl BodyLimit {
    /// Where nothing else is documented.
    pub fn ordinary(limits: &Limits) -> BodyLimit {
        BodyLimit {
            bytes_max: limits.body_bytes_max,
            too_large: Reject::BodyTooLarge.reason(),
            absurd: Reject::LengthAbsurd.reason(),
            name: "body_bytes_max",
        }
    }

    /// What a body may have in any case: below it the path need not be looked at.
    #[inline(always)]
    pub fn least(limits: &Limits) -> usize {
        limits.body_bytes_max.min(limits.evo_ai_body_bytes_max)
    }

    /// What the body of a request may have, wherever it is sent.
    #[cold]
    pub fn of(config: &ServerConfig, service: &dyn Service, head: &Head<'_>) -> BodyLimit {
        match route(config, service, path_of(head)) {
            Route::Rpc(target) => BodyLimit::in_dialect(target.endpoint.dialect, &config.limits),
            _ => BodyLimit::ordinary(&config.limits),
        }
    }

    /// What the body of a call in this dialect may have.
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
