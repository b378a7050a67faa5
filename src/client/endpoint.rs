//! An interface of an agent as the client calls it: URL, format and fields.

use crate::{
    http::{FieldLines, FieldLinesBuf, USER_AGENT, media},
    model::{Generation, is_agent_name},
};

use super::{
    Binding, HttpVersion, TraceParent,
    card::ChosenInterface,
    credentials::{CredentialPlan, CredentialsError},
    format::{Format, WrittenCall},
    outgoing_terms::OutgoingTerms,
};

/// The gRPC metadata that names the tenant in addition to the message.
const TENANT: &str = "a2a-tenant";

/// An interface, and the common parts of its calls.
pub(super) struct AgentEndpoint {
    pub interface: ChosenInterface,
    pub format: Format,
    /// Fields of every request: the version, extensions, and the user's fields.
    pub fields: FieldLinesBuf,
    /// All fields of a JSON request for a JSON answer, as nearly all are, without a token and
    /// terms. Equal to the output of `write_fields`, but written only once.
    json_fields: FieldLinesBuf,
    /// The same for a request for a stream of events.
    stream_fields: FieldLinesBuf,
    /// The credentials, or why they cannot be sent to the interface.
    pub credentials: Result<CredentialPlan, CredentialsError>,
}

impl AgentEndpoint {
    /// The endpoint of an interface; `fields`: the user's fields, `extensions`: the requested URIs.
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
        if fields.get().iter().all(|(name, _)| !name.eq_ignore_ascii_case(USER_AGENT.0)) {
            all.push(USER_AGENT.0, USER_AGENT.1);
        }
        if let Some(version) = format.version_header() {
            all.push("A2A-Version", version);
        }
        if !extensions.is_empty() {
            let named = extensions.join(", ");
            format.extension_headers().iter().for_each(|name| all.push(name, &named));
        }
        all.extend(fields.get());
        let [json_fields, stream_fields] = [media::JSON, media::EVENT_STREAM].map(|accept| {
            let mut prepared = all.clone();
            prepared.push("Content-Type", media::JSON);
            prepared.push("Accept", accept);
            prepared.extend(credentials.as_ref().map_or(FieldLines::NONE, CredentialPlan::fields));
            prepared
        });
        AgentEndpoint { interface, format, fields: all, json_fields, stream_fields, credentials }
    }

    /// The credentials.
    ///
    /// # Errors
    /// [`CredentialsError`]: they cannot be sent to the interface.
    pub fn plan(&self) -> Result<&CredentialPlan, CredentialsError> {
        self.credentials.as_ref().map_err(CredentialsError::clone)
    }

    /// The prepared fields of a call without a token and terms; `None`: other fields are needed.
    pub fn prepared_fields(
        &self,
        call: &WrittenCall,
        after: Option<u64>,
    ) -> Option<FieldLines<'_>> {
        if after.is_some() || call.content_type != Some(media::JSON) {
            return None;
        }
        match call.accept {
            media::JSON => Some(self.json_fields.get()),
            media::EVENT_STREAM => Some(self.stream_fields.get()),
            _ => None,
        }
    }

    /// Writes the fields that request these extensions, in addition to the extensions of all calls.
    pub fn write_extensions(&self, uris: &str, fields: &mut FieldLinesBuf) {
        self.format.extension_headers().iter().for_each(|name| fields.push(name, uris));
    }

    /// Writes the fields of a call except a token. `after`: the last event that a subscriber has
    /// received; `terms`: the terms of the call; their trace replaces the trace of other fields.
    pub fn write_fields(
        &self,
        call: &WrittenCall,
        after: Option<u64>,
        terms: Option<&OutgoingTerms>,
        plan: &CredentialPlan,
        fields: &mut FieldLinesBuf,
    ) {
        fields.clear();
        let trace = terms.and_then(|terms| terms.trace.as_ref());
        if trace.is_none()
            && let Some(prepared) = self.prepared_fields(call, after)
        {
            return fields.extend(prepared);
        }
        extend_fields(trace, fields, self.fields.get());
        if let Some(media) = call.content_type {
            fields.push("Content-Type", media);
        }
        let is_grpc = self.interface.binding == Binding::Grpc;
        match is_grpc {
            // gRPC over HTTP/2, "Requests": `te` detects proxies that lose trailers.
            true => {
                fields.push("te", "trailers");
                // A server that authenticates by the head needs the tenant in the head to find the
                // agent; other servers ignore the field.
                let has_tenant =
                    fields.get().iter().any(|(name, _)| name.eq_ignore_ascii_case(TENANT));
                let tenant = self.tenant(terms).filter(|name| !has_tenant && is_agent_name(name));
                if let Some(tenant) = tenant {
                    fields.push(TENANT, tenant);
                }
            }
            false => fields.push("Accept", call.accept),
        }
        if let Some(after) = after {
            let name = if is_grpc { "a2a-last-event-id" } else { "Last-Event-ID" };
            fields.push(name, &after.to_string());
        }
        extend_fields(trace, fields, plan.fields());
    }

    /// Path and query of a call.
    pub fn write_target(&self, call: &WrittenCall, target: &mut String) {
        target.clear();
        let path = self.interface.url.path.as_str();
        match self.interface.binding {
            // Below the interface's path; the interface's query is retained.
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
            // The path consists of the service and the rpc.
            Binding::Grpc => target.push_str(&call.path),
        }
    }

    /// Whether results are JSON of 1.0, which can be passed on unchanged.
    pub fn is_v1_json(&self) -> bool {
        let is_json = self.interface.binding != Binding::Grpc;
        is_json && self.interface.generation == Generation::V1
    }

    /// Whether a task is a run of a thread, as in LangSmith (wire §8): the thread may precede the
    /// id of a task.
    pub fn has_threads(&self) -> bool {
        self.format.dialect() == "langsmith"
    }

    /// Whether each message creates a task, even if it names one: a run of LangSmith, a task of
    /// Pydantic AI.
    pub fn makes_task_each_time(&self) -> bool {
        self.has_threads() || self.format.dialect() == "fasta2a"
    }

    /// The HTTP version that calls need.
    pub fn http_version(&self) -> HttpVersion {
        match self.interface.binding {
            Binding::JsonRpc | Binding::HttpJson => HttpVersion::Any,
            Binding::WebSocket => HttpVersion::Http1,
            Binding::Grpc => HttpVersion::Http2,
        }
    }

    /// The `tenant` of each call.
    pub fn tenant<'t>(&'t self, terms: Option<&'t OutgoingTerms>) -> Option<&'t str> {
        let own = terms.and_then(|terms| terms.tenant.as_deref());
        own.or(self.interface.tenant.as_deref())
    }
}

/// Appends `more`, without its `traceparent` if the call has a trace.
fn extend_fields(trace: Option<&TraceParent>, fields: &mut FieldLinesBuf, more: FieldLines<'_>) {
    if trace.is_none() {
        fields.extend(more);
        return;
    }
    let others = more.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(TraceParent::FIELD));
    others.for_each(|(name, value)| fields.push(name, value));
}
