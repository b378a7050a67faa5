//! Operations on a server's `--admin` listener: the address, the credential, the answer.
//!
//! A credential is sent in plain text only to this machine, unless `--allow-http-credentials` is
//! set. The server's answer is printed without control characters.

use std::{env, fmt::Write, future::poll_fn, time::Duration};

use clap::ArgMatches;
use peregrine::{
    client::{
        FieldLinesBuf, HttpMethod, HttpOrigin, HttpRequest, HttpResponse, HttpVersion, Transport,
        TransportError,
    },
    net::{HttpClient, HttpClientOptions},
};
use serde_json::Value;

use super::{
    calls::client_tls,
    failure::{CommandFailure, FailureCode},
    settings::Settings,
    text::one_line,
};

/// The environment variable with the address of the listener: the variable of the server's key
/// `admin`.
const VARIABLE: &str = "PEREGRINE_ADMIN";

/// Time limit of an answer without `--timeout`.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum bytes of an answer: all dead letters that a server retains, with long ids.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The hint if a server rejects an operation.
const CREDENTIAL: &str = "--api-key KEY or --bearer TOKEN, with the scope a2a:admin";

/// The settings of the client that these commands take.
pub const SETTINGS: [&str; 9] = [
    "output",
    "timeout",
    "bearer",
    "api-key",
    "ca",
    "cert",
    "key",
    "insecure",
    "allow-http-credentials",
];

/// A request of an operator.
#[derive(Clone, Copy)]
pub struct AdminOperation<'a> {
    /// Its method.
    pub method: HttpMethod,
    /// Its path and query.
    pub path: &'a str,
    /// Its body: JSON, or empty.
    pub content: &'a [u8],
    /// The command that lists existing objects, printed with a 404.
    pub hint: &'static str,
}

/// Sends an operation to the listener that flags or the environment name, and returns the answer.
///
/// # Errors
/// A [`CommandFailure`].
pub fn perform(
    operation: AdminOperation<'_>,
    flags: &ArgMatches,
    settings: &Settings,
) -> Result<String, CommandFailure> {
    let listener = AdminAddress::of(flags)?;
    let fields = listener.credentials(settings)?;
    let patience = settings.time("timeout")?.unwrap_or(PATIENCE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let no_room = |error| internal(format!("cannot start the runtime: {error}"));
    runtime.map_err(no_room)?.block_on(async {
        let response = listener.send(operation, &fields, settings);
        tokio::time::timeout(patience, response).await.unwrap_or_else(|_| {
            let seconds = patience.as_secs_f64();
            let line = format!("{listener} did not respond within {seconds} s");
            Err(CommandFailure::new(FailureCode::Timeout, line))
        })
    })
}

/// The address of an `--admin` listener.
struct AdminAddress {
    /// The address as given.
    address: String,
    url: String,
    origin: HttpOrigin,
    /// The path of the Unix socket; `None`: the address is a URL.
    unix: Option<String>,
}

impl std::fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.address)
    }
}

impl AdminAddress {
    fn of(flags: &ArgMatches) -> Result<AdminAddress, CommandFailure> {
        let flag = flags.get_many::<String>("admin").into_iter().flatten().next_back().cloned();
        let address =
            flag.or_else(|| env::var(VARIABLE).ok()).filter(|address| !address.is_empty());
        let address = address.ok_or_else(|| {
            let line = format!(
                "missing the server's address: --admin ADDR, --admin unix:PATH, or {VARIABLE}"
            );
            CommandFailure::usage(line).hint("use the address given to peregrine serve --admin")
        })?;
        let unix = address.strip_prefix("unix:").map(str::to_owned);
        let has_scheme = address.starts_with("http://") || address.starts_with("https://");
        let url = match (&unix, has_scheme) {
            (Some(_), _) => "http://localhost/".to_owned(),
            (None, true) => format!("{}/", address.trim_end_matches('/')),
            (None, false) => format!("http://{}/", address.trim_end_matches('/')),
        };
        match HttpOrigin::parse(&url) {
            Ok(parsed) if parsed.path == "/" => {
                Ok(AdminAddress { address, url, origin: parsed.origin, unix })
            }
            Ok(_) => Err(CommandFailure::usage(format!(
                "--admin {address}: the address must not have a path"
            ))),
            Err(error) => Err(CommandFailure::usage(format!("--admin {address}: {error}"))),
        }
    }

    /// The request fields with the credentials of the settings.
    fn credentials(&self, settings: &Settings) -> Result<FieldLinesBuf, CommandFailure> {
        let mut fields = FieldLinesBuf::default();
        let bearer = settings.text("bearer").map(|token| format!("Bearer {token}"));
        let key = settings.text("api-key").map(str::to_owned);
        let is_plain = self.unix.is_none() && self.url.starts_with("http://");
        let is_exposed = is_plain && !self.origin.is_loopback();
        if is_exposed
            && (bearer.is_some() || key.is_some())
            && !settings.is_on("allow-http-credentials")?
        {
            let line = format!("--admin {self}: a credential would be sent in plain text");
            return Err(CommandFailure::usage(line).hint(
                "use https://HOST:PORT if the server has TLS, or add --allow-http-credentials",
            ));
        }
        for (name, setting, value) in
            [("Authorization", "bearer", bearer), ("X-API-Key", "api-key", key)]
        {
            let Some(value) = value else { continue };
            if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                return Err(CommandFailure::usage(format!("--{setting} must be printable ASCII")));
            }
            fields.push(name, &value);
        }
        Ok(fields)
    }

    async fn send(
        &self,
        operation: AdminOperation<'_>,
        credentials: &FieldLinesBuf,
        settings: &Settings,
    ) -> Result<String, CommandFailure> {
        let mut fields = credentials.clone();
        if !operation.content.is_empty() {
            fields.push("Content-Type", "application/json");
        }
        let options = HttpClientOptions { tls: client_tls(settings)?, ..Default::default() };
        let client = match &self.unix {
            Some(path) => HttpClient::over_unix(path, options),
            None => HttpClient::new(options),
        };
        let client = client.map_err(|error| CommandFailure::usage(error.to_string()))?;
        let lost = |error: TransportError| {
            let line = format!("{self}: {error}");
            CommandFailure::new(FailureCode::Unreachable, line)
                .hint("use the address given to peregrine serve --admin")
        };
        let request = HttpRequest {
            method: operation.method,
            origin: &self.origin,
            target: operation.path,
            fields: fields.get(),
            body: operation.content,
            version: HttpVersion::Http1,
            // `perform` limits the total time.
            head_due_ms: u64::MAX,
            body_idle_ms: u64::MAX,
            is_repeatable: false,
        };
        let mut response = client.request(request).await.map_err(lost)?;
        let mut body = Vec::new();
        loop {
            let room = ANSWER_BYTES_MAX.saturating_sub(body.len());
            if room == 0 {
                let line = format!("{self} has sent more than {ANSWER_BYTES_MAX} bytes");
                return Err(internal(line));
            }
            if !poll_fn(|cx| response.poll_read(cx, &mut body, room)).await.map_err(lost)? {
                break;
            }
        }
        let text = String::from_utf8_lossy(&body).into_owned();
        match response.status() {
            200 | 202 => Ok(text),
            status => Err(self.refusal(status, &text, operation.hint)),
        }
    }

    /// The failure of a status other than 200.
    fn refusal(&self, status: u16, text: &str, hint: &'static str) -> CommandFailure {
        let document = serde_json::from_str(text).unwrap_or(Value::Null);
        let error = document["error"].as_str().or_else(|| document["error"]["message"].as_str());
        let error = error.map(str::to_owned);
        let failure = match (error, status) {
            (error, 401) => {
                let line = error.unwrap_or_else(|| format!("{self} needs a credential"));
                CommandFailure::new(FailureCode::CredentialsMissing, line).hint(CREDENTIAL)
            }
            (error, 403) => {
                let line = error.unwrap_or_else(|| format!("{self} refused the request"));
                CommandFailure::new(FailureCode::AuthFailed, line).hint(CREDENTIAL)
            }
            (Some(error), 404) if document["error"].is_string() => {
                CommandFailure::new(FailureCode::NotFound, error).hint(hint)
            }
            (_, 404) => internal(format!("{self} does not serve this operation")),
            (Some(error), 400) => CommandFailure::usage(error),
            (Some(error), _) => internal(error),
            (None, _) => internal(format!("{self} answered with HTTP status {status}")),
        };
        CommandFailure { a2a_code: Some(status.into()), ..failure }
    }
}

fn internal(line: String) -> CommandFailure {
    CommandFailure::new(FailureCode::Internal, line)
}

/// The JSON of an answer.
///
/// # Errors
/// A [`CommandFailure`]: the answer is not JSON.
pub fn read(answer: &str) -> Result<Value, CommandFailure> {
    serde_json::from_str(answer).map_err(|_| internal("the answer is not JSON".to_owned()))
}

/// A member of an object as one line without control characters; `-` if it is absent or empty.
pub fn cell(object: &Value, name: &str) -> String {
    match &object[name] {
        Value::String(text) if !text.is_empty() => one_line(text),
        Value::Number(number) => number.to_string(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        _ => "-".to_owned(),
    }
}

/// Objects as rows under the labels of their members, each column as wide as its widest cell.
/// `columns` are names of members with their labels.
pub fn table<const N: usize>(columns: [(&str, &str); N], objects: &Value) -> String {
    let objects = objects.as_array().map_or(&[][..], Vec::as_slice);
    let rows: Vec<[String; N]> =
        objects.iter().map(|object| columns.map(|(name, _)| cell(object, name))).collect();
    let head = columns.map(|(_, label)| label.to_uppercase());
    let mut widths = [0; N];
    for row in [&head].into_iter().chain(&rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in [&head].into_iter().chain(&rows) {
        let mut line = String::new();
        for (width, cell) in widths.into_iter().zip(row) {
            // Writing to a String never fails.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
