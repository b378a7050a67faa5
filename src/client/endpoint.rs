//! One interface of an agent as it is called: where, in which format, with which fields.

use crate::{http::FieldLinesBuf, model::Generation};

use super::{
    Binding, HttpVersion,
    card::ChosenInterface,
    credentials::{CredentialPlan, CredentialsError},
    format::{Format, WrittenCall},
};

/// An interface, and what each of its calls has.
pub(super) struct AgentEndpoint {
    pub interface: ChosenInterface,
    pub format: Format,
    /// Fields that every request has: the version, extensions, what the user adds.
    pub fields: FieldLinesBuf,
    /// What says who calls; an error where that cannot be said there.
    pub credentials: Result<CredentialPlan, CredentialsError>,
}

impl AgentEndpoint {
    /// Of an interface that was chosen; `fields`: what the user adds, `extensions`: the URIs to ask
    /// for.
    pub fn new(
        interface: ChosenInterface,
        extensions: &[String],
        fields: &FieldLinesBuf,
        credentials: Result<CredentialPlan, CredentialsError>,
    ) -> AgentEndpoint {
        let ChosenInterface { binding, generation, dialect, .. } = interface;
        let format = Format::of_dialect(binding, generation, dialect);
        let format = format.unwrap_or_else(|| Format::standard(binding, generation));
        let mut all = FieldLinesBuf::default();
        all.push("User-Agent", concat!("peregrine/", env!("CARGO_PKG_VERSION")));
        if let Some(version) = format.version_header() {
            all.push("A2A-Version", version);
        }
        if !extensions.is_empty() {
            let named = extensions.join(", ");
            format.extension_headers().iter().for_each(|name| all.push(name, &named));
        }
        all.extend(fields.get());
        AgentEndpoint { interface, format, fields: all, credentials }
    }

    /// Path and query of a call.
    pub fn write_target(&self, call: &WrittenCall, target: &mut String) {
        target.clear();
        let path = self.interface.url.path.as_str();
        match self.interface.binding {
            // Below the interface's path, whose query stays one.
            Binding::HttpJson => {
                let (path, query) = path.split_once('?').unwrap_or((path, ""));
                target.push_str(path.trim_end_matches('/'));
                target.push_str(&call.path);
                if !query.is_empty() {
                    target.push(if call.path.contains('?') { '&' } else { '?' });
                    target.push_str(query);
                }
            }
            Binding::JsonRpc | Binding::WebSocket => {
                target.push_str(path);
                target.push_str(&call.path);
            }
            // The service and the rpc are the path.
            Binding::Grpc => target.push_str(&call.path),
        }
    }

    /// True: its results are the JSON of 1.0, and can be passed on as they are.
    pub fn is_v1_json(&self) -> bool {
        let is_json = self.interface.binding != Binding::Grpc;
        is_json && self.interface.generation == Generation::V1
    }

    /// The version of HTTP that calls need.
    pub fn http_version(&self) -> HttpVersion {
        match self.interface.binding {
            Binding::JsonRpc | Binding::HttpJson => HttpVersion::Any,
            Binding::WebSocket => HttpVersion::Http1,
            Binding::Grpc => HttpVersion::Http2,
        }
    }

    /// What each call says as its `tenant`.
    pub fn tenant(&self) -> Option<&str> {
        self.interface.tenant.as_deref()
    }
}
