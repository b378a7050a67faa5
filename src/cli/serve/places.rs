//! The paths of a server's agents, and a call of the agent at the root that any shell can make.

use std::fmt::Write;

use peregrine::{
    agent::Extension,
    engine::{FirstCall, Setup, first_call},
    model::{CardSchemeKind, Generation},
};

/// Maximum rows to show; a last row has the number of other rows.
const SHOWN_MAX: usize = 24;

/// The credential of the banner's call: flags of curl with placeholders, and a note about them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnCredential {
    flags: String,
    note: &'static str,
}

impl OwnCredential {
    fn certificate() -> OwnCredential {
        OwnCredential {
            flags: " --cert client.pem --key client.key".to_owned(),
            note: "with your own certificate and key",
        }
    }

    /// The credential for the agent at the root. A header precedes a certificate, because a server
    /// that accepts other credentials does not require the certificate. `None`: the agent needs no
    /// credential.
    fn of(setup: &Setup, first: usize, requests_certificates: bool) -> Option<OwnCredential> {
        let agent = setup.agents.get(first).map(|(profile, _)| profile);
        let Some(authenticator) = &setup.authenticator else {
            return requests_certificates.then(OwnCredential::certificate);
        };
        if agent.is_some_and(|profile| profile.anonymous) {
            return None;
        }
        let security = authenticator.security();
        let header = security.schemes.iter().find_map(|scheme| match &scheme.kind {
            CardSchemeKind::ApiKey { header } => Some(OwnCredential {
                flags: format!(" -H '{header}: YOUR_KEY'"),
                note: "with your own API key in place of YOUR_KEY",
            }),
            CardSchemeKind::Http { scheme, .. } if scheme.eq_ignore_ascii_case("bearer") => {
                Some(OwnCredential::token())
            }
            CardSchemeKind::OpenIdConnect { .. } | CardSchemeKind::OAuth2 { .. } => {
                Some(OwnCredential::token())
            }
            CardSchemeKind::Http { .. } | CardSchemeKind::MutualTls => None,
        });
        let certificate = || requests_certificates.then(OwnCredential::certificate);
        Some(header.or_else(certificate).unwrap_or_else(|| OwnCredential {
            flags: String::new(),
            note: "with a credential that the server accepts ([auth])",
        }))
    }

    fn token() -> OwnCredential {
        OwnCredential {
            flags: " -H 'Authorization: Bearer YOUR_TOKEN'".to_owned(),
            note: "with your own token in place of YOUR_TOKEN",
        }
    }
}

/// The paths of agents and mounts, as configured.
pub struct ServedPaths {
    /// The rows of the banner: label and path.
    rows: Vec<(String, String)>,
    /// The call that sends a message to `/`.
    root: Option<FirstCall>,
    /// The extensions that every call to the agent at `/` must name.
    required: Vec<String>,
    /// The credential that a call of the agent at `/` needs.
    credential: Option<OwnCredential>,
}

impl ServedPaths {
    /// The paths of a setup and its agents; `requests_certificates`: the server requests
    /// certificates from clients.
    pub fn of(setup: &Setup, requests_certificates: bool) -> ServedPaths {
        let names = setup.agents.iter().map(|(profile, _)| &profile.name);
        let mut rows: Vec<(String, String)> =
            names.map(|name| (format!("agent   {name}"), format!("/agents/{name}"))).collect();
        let (mut root, mut first) = (first_call("standard"), 0);
        for mount in &setup.mounts {
            let path = mount.path.trim_end_matches('/');
            let agent = mount.agent.as_deref();
            let index = agent.map_or(Some(0), |name| index_of(setup, name));
            if path.is_empty() {
                root = first_call(&mount.dialect).or(root);
                first = index.unwrap_or(0);
            }
            // A mount takes precedence over the agent's default path.
            rows.retain(|(_, other)| other != path);
            let name = index.and_then(|index| setup.agents.get(index));
            let name = name.map_or("", |(profile, _)| &profile.name);
            rows.push((format!("mount   {} {name}", mount.dialect), format!("{path}/")));
        }
        let extensions = setup.agents.get(first).map(|(profile, _)| &profile.extensions[..]);
        let required = extensions.unwrap_or_default().iter().filter(|it| it.required);
        let required = required.map(|Extension { uri, .. }| uri.clone()).collect();
        let credential = OwnCredential::of(setup, first, requests_certificates);
        ServedPaths { rows, root, required, credential }
    }

    /// The rows as lines of the banner, with paths below `url`. `socket`: the path of the Unix
    /// socket, if the server has no other listener.
    pub fn lines(&self, url: &str, socket: Option<&str>) -> String {
        let mut text = String::new();
        let width = self.rows.iter().map(|(label, _)| label.len()).max().unwrap_or_default();
        // Writing to a String never fails.
        for (label, path) in self.rows.iter().take(SHOWN_MAX) {
            let _ = writeln!(text, "  {label:width$}  {url}{path}");
        }
        if let Some(more) = self.rows.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
            let _ = writeln!(text, "          and {more} more");
        }
        let _ = writeln!(text, "  card    {url}/.well-known/agent-card.json");
        let _ = writeln!(text, "  try     {}", self.call(url, socket));
        if let Some(OwnCredential { note, .. }) = &self.credential {
            let _ = writeln!(text, "          {note}");
        }
        text
    }

    /// The call for any shell.
    fn call(&self, url: &str, socket: Option<&str>) -> String {
        // The URL is an address of this machine, and few certificates contain such an address.
        let insecure = if url.starts_with("https:") { "k" } else { "" };
        let credential = self.credential.as_ref().map_or("", |own| &own.flags);
        let socket = socket.map(|path| format!(" --unix-socket '{path}'")).unwrap_or_default();
        let mut text = format!(
            "curl -s{insecure}{socket}{credential} '{url}/' -H 'Content-Type: application/json'"
        );
        if self.root.is_some_and(|root| root.needs_accept) {
            text.push_str(" -H 'Accept: application/json'");
        }
        if !self.required.is_empty() {
            let _ = write!(text, " -H 'A2A-Extensions: {}'", self.required.join(", "));
        }
        let Some(FirstCall { method, generation, .. }) = self.root else { return text };
        let (header, params) = match generation {
            Generation::V1 => (" -H 'A2A-Version: 1.0'", V1),
            Generation::V03 => ("", V03),
            Generation::V01 => ("", V01),
        };
        let _ =
            write!(text, r#"{header} -d '{{"jsonrpc":"2.0","id":1,"method":"{method}","params":"#);
        text.push_str(params);
        text.push_str("}'");
        text
    }
}

const V1: &str = r#"{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hello"}]}}"#;
const V03: &str = concat!(
    r#"{"message":{"kind":"message","messageId":"m-1","role":"user","#,
    r#""parts":[{"kind":"text","text":"hello"}]}}"#,
);
/// In 0.1 the client names the task, so each call needs a new id.
const V01: &str = concat!(
    r#"{"id":"task-'"$(date +%s)"'","message":{"role":"user","#,
    r#""parts":[{"type":"text","text":"hello"}]}}"#,
);

fn index_of(setup: &Setup, name: &str) -> Option<usize> {
    setup.agents.iter().position(|(profile, _)| profile.name == name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use peregrine::{
        agent::{Agent, Profile, echo::Echo},
        engine::Mount,
    };

    use super::*;

    fn agents(count: usize) -> Vec<(Profile, Arc<dyn Agent>)> {
        let agent = |n| -> (Profile, Arc<dyn Agent>) {
            (Profile::new(&format!("a{n}"), "An agent."), Arc::new(Echo))
        };
        (0..count).map(agent).collect()
    }

    #[test]
    fn every_agent_and_mount_has_its_line() {
        let mount = |path: &str, agent: Option<&str>| Mount {
            path: path.to_owned(),
            dialect: "langsmith".to_owned(),
            agent: agent.map(str::to_owned),
        };
        let mounts = vec![mount("/x/", Some("a1")), mount("/agents/a0", None)];
        let setup = Setup { agents: agents(2), mounts, ..Setup::default() };
        let text = ServedPaths::of(&setup, false).lines("http://h:1", None);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "agent   a1            http://h:1/agents/a1");
        assert_eq!(lines[1], "mount   langsmith a1  http://h:1/x/");
        assert_eq!(lines[2], "mount   langsmith a0  http://h:1/agents/a0/");
    }

    #[test]
    fn agents_beyond_shown_max_are_counted() {
        let setup = Setup { agents: agents(SHOWN_MAX + 2), ..Setup::default() };
        let text = ServedPaths::of(&setup, false).lines("http://h:1", None);
        assert!(text.contains("and 2 more") && text.lines().count() == SHOWN_MAX + 3, "{text}");
    }
}
