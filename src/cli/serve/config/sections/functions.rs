//! The keys of `[agents.NAME]` for an agent that is an HTTP function.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

use peregrine::net::{FunctionOptions, HttpClientOptions};

use super::{
    super::tree::{ConfigSection, Wrong},
    remote,
    upstream_credentials::UpstreamCredentials,
};

/// The kind of an HTTP function.
pub const FUNCTION: &str = "http";

/// Keys of `upstream` that do not apply to a function.
const OF_REMOTE: [&str; 10] = [
    "transports",
    "version",
    "version_min",
    "tenant",
    "pass_tenant",
    "origins",
    "card_keys",
    "card_ms",
    "calls",
    "streams",
];

/// An HTTP function, and the options of its calls.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FunctionSpec {
    /// The URL to which turns are posted.
    pub url: String,
    credentials: UpstreamCredentials,
    call_ms: u64,
    silence_ms: u64,
    turns_max: usize,
    queue_max: usize,
    history: bool,
    show_errors: bool,
}

/// The debug text has no secrets.
impl fmt::Debug for FunctionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionSpec").field("url", &self.url).finish_non_exhaustive()
    }
}

impl FunctionSpec {
    /// The function at a URL.
    pub fn at(url: &str) -> FunctionSpec {
        let options = FunctionOptions::default();
        FunctionSpec {
            url: url.to_owned(),
            credentials: UpstreamCredentials::default(),
            call_ms: options.call_ms,
            silence_ms: options.silence_ms,
            turns_max: options.turns_max,
            queue_max: options.queue_max,
            history: options.history,
            show_errors: options.show_errors,
        }
    }

    /// Reads the section of an agent and its `upstream`.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn read(agent: &ConfigSection) -> Result<FunctionSpec, Wrong> {
        for key in ["script", "command", "environment", "chunk", "processes"] {
            if agent.value(key).is_some() {
                return Err(agent.wrong(key, "is not for the agent kind http"));
            }
        }
        let upstream = agent.section("upstream").filter(|section| section.is_set());
        let missing = || agent.wrong("upstream", "is missing: the agent kind http needs its url");
        let upstream = upstream.ok_or_else(missing)?;
        for key in OF_REMOTE {
            if upstream.value(key).is_some() {
                return Err(upstream.wrong(key, "is only for remote A2A agents"));
            }
        }
        let spec = FunctionSpec::at(remote::url(upstream)?);
        let whole = |name, default| agent.whole(name).map_or(default, |number| number as usize);
        Ok(FunctionSpec {
            credentials: UpstreamCredentials::read(upstream)?,
            call_ms: upstream.millis("call_ms")?.unwrap_or(spec.call_ms),
            silence_ms: agent.millis("silence_ms")?.unwrap_or(spec.silence_ms),
            turns_max: whole("turns", spec.turns_max),
            queue_max: whole("queue", spec.queue_max),
            history: agent.switch("history").unwrap_or(spec.history),
            show_errors: agent.switch("show_errors").unwrap_or(spec.show_errors),
            ..spec
        })
    }

    /// The identity of the function: functions with equal identities are called in the same way.
    /// The text has no secrets.
    pub fn made_of(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        format!("http {} {:x}", self.url, hasher.finish())
    }

    /// Whether the `Authorization` of callers is passed on.
    pub fn passes_authorization(&self) -> bool {
        self.credentials.passes_authorization
    }

    /// The options of the agent.
    pub fn options(&self) -> FunctionOptions {
        FunctionOptions {
            credentials: self.credentials.credentials(),
            call_ms: self.call_ms,
            silence_ms: self.silence_ms,
            turns_max: self.turns_max,
            queue_max: self.queue_max,
            history: self.history,
            show_errors: self.show_errors,
        }
    }

    /// The options of the HTTP client.
    pub fn client_options(&self) -> HttpClientOptions {
        HttpClientOptions { tls: self.credentials.tls(), ..HttpClientOptions::default() }
    }
}
