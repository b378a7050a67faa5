//! The server's own pages: which details each caller gets, with and without authentication.

use std::{
    borrow::Cow,
    net::IpAddr,
    sync::Arc,
    task::{Poll, Waker},
};

use peregrine::{
    auth::{
        Admission, AuthRefusal, Authenticator, CredentialKind, CredentialSource, Grant, Presented,
        Principal, PrincipalBuf, ScopeSet, TenantGrant,
    },
    engine::{BuildError, Cors, Mount, Setup, Start},
    model::CardSecurity,
    service::{
        Now, Peer,
        pages::{AdminAnswer, AdminMethod, AdminRequest, PageAnswer, PageSource, ServerPage},
    },
};

use crate::support::{Lab, echo};

/// Answers with the page's name and whether it has details.
struct PageNames;

impl PageSource for PageNames {
    fn are_on_agent_listeners(&self) -> bool {
        true
    }

    fn write(&self, page: ServerPage, details: bool, out: &mut Vec<u8>) -> Option<PageAnswer> {
        out.extend_from_slice(format!("{page:?} {details}").as_bytes());
        Some(PageAnswer { status: 200, media: "text/plain" })
    }

    fn administer(&self, request: AdminRequest<'_>, out: &mut Vec<u8>) -> AdminAnswer {
        use AdminMethod::{Delete, Get, Other, Post};
        match (request.path, request.method) {
            ("/thing", Get | Post | Delete) => {
                out.extend_from_slice(format!("{:?}", request.method).as_bytes());
                AdminAnswer::Page(PageAnswer { status: 200, media: "text/plain" })
            }
            ("/thing", Other) => AdminAnswer::Allows(&[Get, Post, Delete]),
            _ => AdminAnswer::Nowhere,
        }
    }
}

/// A bearer token is a list of scopes; `wrong` is invalid.
struct ByScopes;

impl Authenticator for ByScopes {
    fn find<'a>(&self, source: &CredentialSource<'a>) -> Option<Presented<'a>> {
        let secret = Cow::Borrowed(source.authorization?.strip_prefix(b"Bearer ")?);
        Some(Presented { kind: CredentialKind::Bearer, secret, address: None })
    }

    fn check(
        &self,
        presented: &Presented<'_>,
        _now: Now,
        _wake: &Waker,
    ) -> Poll<Result<Admission, AuthRefusal>> {
        let text = str::from_utf8(&presented.secret).unwrap_or("wrong");
        if text == "wrong" {
            return Poll::Ready(Err(AuthRefusal::Wrong("it is wrong")));
        }
        let principal = Arc::new(Principal::new(PrincipalBuf {
            kind: presented.kind,
            issuer: String::new(),
            name: "somebody".to_owned(),
            tenants: TenantGrant::None,
            scopes: ScopeSet::new(text.split(',')),
            quota: None,
        }));
        let grant = Arc::new(Grant::default());
        Poll::Ready(Ok(Admission { principal, expires_unix_ms: u64::MAX, grant }))
    }

    fn challenge(&self, _refusal: &AuthRefusal) -> String {
        "Bearer".to_owned()
    }

    fn security(&self) -> CardSecurity {
        CardSecurity::default()
    }
}

fn lab(authenticates_callers: bool) -> Lab {
    let authenticator = authenticates_callers.then(|| Arc::new(ByScopes) as Arc<dyn Authenticator>);
    let pages: Option<Arc<dyn PageSource>> = Some(Arc::new(PageNames));
    Lab::new(Setup { authenticator, pages, ..Setup::default() })
}

fn from(address: &str) -> Peer<'static> {
    let address: IpAddr = address.parse().unwrap();
    Peer { remote: Some(address), ..Peer::default() }
}

/// The status and the content of the answer to a GET.
fn get_page(lab: &mut Lab, peer: Peer<'static>, path: &str, lines: &str) -> (u16, String) {
    let peer = lab.open_to(peer);
    lab.write(peer, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n").as_bytes());
    let reply = lab.reply(peer);
    (reply.status, reply.text().to_owned())
}

#[test]
fn metrics_and_details_require_loopback_or_admin_access() {
    let admin = "Authorization: Bearer a2a:read,a2a:admin\r\n";
    let reader = "Authorization: Bearer a2a:read\r\n";
    let wrong = "Authorization: Bearer wrong\r\n";
    let forwarded = "X-Forwarded-For: 192.0.2.7\r\n";
    let listener = Peer { is_admin: true, ..from("192.0.2.1") };
    for (authenticates_callers, peer, lines, metrics, details) in [
        (false, from("127.0.0.1"), "", 200, true),
        (false, from("::1"), "", 200, true),
        (false, from("::ffff:127.0.0.1"), "", 200, true),
        (false, from("127.0.0.1"), forwarded, 403, false),
        (false, from("192.0.2.1"), "", 403, false),
        (false, Peer::default(), "", 403, false),
        (false, listener, "", 200, true),
        (true, from("127.0.0.1"), "", 200, true),
        (true, from("127.0.0.1"), forwarded, 401, false),
        (true, from("192.0.2.1"), "", 401, false),
        (true, from("192.0.2.1"), wrong, 401, false),
        (true, from("192.0.2.1"), reader, 403, false),
        (true, from("192.0.2.1"), admin, 200, true),
        (true, listener, "", 200, true),
        (true, listener, wrong, 200, true),
    ] {
        let mut lab = lab(authenticates_callers);
        let what = format!("{authenticates_callers} {peer:?} {lines}");
        assert_eq!(get_page(&mut lab, peer, "/metrics", lines).0, metrics, "{what}");
        let ready = (200, format!("Ready {details}"));
        assert_eq!(get_page(&mut lab, peer, "/readyz", lines), ready, "{what}");
        assert_eq!(get_page(&mut lab, peer, "/healthz", lines).0, 200, "{what}");
    }
}

#[test]
fn foreign_host_gets_no_metrics_even_from_loopback() {
    let mut lab = lab(false);
    let peer = lab.open_to(from("127.0.0.1"));
    lab.write(peer, b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(lab.reply(peer).status, 403);
}

#[test]
fn foreign_origin_reads_no_server_page_even_with_cors_star() {
    let cors = Cors { origins: vec!["*".to_owned()], ..Cors::default() };
    let setup = |cors| Setup { pages: Some(Arc::new(PageNames)), cors, ..Setup::default() };
    let mut lab = Lab::new(setup(cors));
    for (lines, is_same_origin) in [
        ("", true),
        ("Sec-Fetch-Site: none\r\n", true),
        ("Sec-Fetch-Site: same-origin\r\n", true),
        ("Sec-Fetch-Site: same-site\r\n", false),
        ("Sec-Fetch-Site: cross-site\r\n", false),
        ("Origin: http://evil.example\r\n", false),
        ("Origin: null\r\n", false),
    ] {
        let metrics = if is_same_origin { 200 } else { 403 };
        assert_eq!(get_page(&mut lab, from("127.0.0.1"), "/metrics", lines).0, metrics, "{lines}");
        let ready = (200, format!("Ready {is_same_origin}"));
        assert_eq!(get_page(&mut lab, from("127.0.0.1"), "/readyz", lines), ready, "{lines}");
    }
    let listener = Peer { is_admin: true, ..from("127.0.0.1") };
    for (peer, path) in [
        (from("127.0.0.1"), "/metrics"),
        (from("127.0.0.1"), "/readyz"),
        (from("127.0.0.1"), "/healthz"),
        (listener, "/metrics"),
        (listener, "/nothing"),
    ] {
        for method in ["GET", "OPTIONS", "POST"] {
            let peer = lab.open_to(peer);
            let lines = "Host: localhost\r\nOrigin: http://evil.example\r\n\
                Access-Control-Request-Method: GET\r\nContent-Length: 0\r\n";
            lab.write(peer, format!("{method} {path} HTTP/1.1\r\n{lines}\r\n").as_bytes());
            let reply = lab.reply(peer);
            assert_eq!(reply.field("access-control-allow-origin"), None, "{method} {path}");
        }
    }
}

#[test]
fn admin_listener_rejects_foreign_host_names() {
    let listener = Peer { is_admin: true, ..from("192.0.2.1") };
    for (named, host, status) in [
        (None, "evil.example:9090", 421),
        (None, "localhost:9090", 200),
        (None, "192.0.2.9:9090", 200),
        (None, "[2001:db8::1]:9090", 200),
        (Some("metrics.example"), "metrics.example:9090", 200),
        (Some("metrics.example"), "192.0.2.9", 200),
        (Some("metrics.example"), "evil.example", 421),
        (Some("*"), "evil.example", 200),
    ] {
        let allow_hosts = named.into_iter().map(str::to_owned).collect();
        let setup = Setup { allow_hosts, pages: Some(Arc::new(PageNames)), ..Setup::default() };
        let mut lab = Lab::new(setup);
        let peer = lab.open_to(listener);
        lab.write(peer, format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        assert_eq!(lab.reply(peer).status, status, "{named:?} {host}");
    }
}

#[test]
fn admin_changes_require_the_admin_listener_and_no_origin() {
    let listener = Peer { is_admin: true, is_loopback: true, ..from("127.0.0.1") };
    let mut lab = lab(false);
    let mut request = |peer, method: &str, path: &str, lines: &str| {
        let peer = lab.open_to(peer);
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}");
        lab.write(peer, format!("{head}Content-Length: 0\r\n\r\n").as_bytes());
        lab.reply(peer)
    };
    for (method, name) in [("GET", "Get"), ("POST", "Post"), ("DELETE", "Delete")] {
        let reply = request(listener, method, "/thing", "");
        assert_eq!((reply.status, reply.text()), (200, name));
        assert_eq!(reply.field("cache-control"), Some("no-store"));
        assert_eq!(request(listener, method, "/other", "").status, 404);
        let reply = request(from("127.0.0.1"), method, "/thing", "");
        assert!(reply.status >= 400 && reply.text() != name, "{method} {}", reply.status);
        for lines in [
            "Origin: http://localhost\r\n",
            "Origin: null\r\n",
            "Sec-Fetch-Site: cross-site\r\n",
            "Sec-Fetch-Site: same-site\r\n",
        ] {
            let reply = request(listener, method, "/thing", lines);
            let status = if method == "GET" { 200 } else { 403 };
            assert_eq!(reply.status, status, "{method} {lines}");
            assert_eq!(reply.field("access-control-allow-origin"), None);
        }
    }
    for method in ["PUT", "OPTIONS", "PATCH", "BREW"] {
        let reply = request(listener, method, "/thing", "");
        assert_eq!((reply.status, reply.field("allow")), (405, Some("GET, HEAD, POST, DELETE")));
        assert_eq!(request(listener, method, "/other", "").status, 404, "{method}");
    }
    let peer = lab.open_to(listener);
    lab.write(peer, b"POST /thing HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(lab.reply(peer).status, 421);
}

#[test]
fn server_page_paths_are_404_when_pages_are_off() {
    let mut lab = Lab::echo();
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(get_page(&mut lab, from("127.0.0.1"), path, "").0, 404, "{path}");
    }
}

#[test]
fn mount_at_a_server_page_path_is_a_build_error() {
    let mount = Mount { path: "/metrics/".to_owned(), dialect: "standard".to_owned(), agent: None };
    let setup = Setup { agents: vec![echo()], mounts: vec![mount], ..Setup::default() };
    let start = Start { secret: 1, unix_ms: Arc::new(|| 0), workers: 1, base_url: String::new() };
    let refused = setup.build(start).err();
    assert_eq!(refused, Some(BuildError::PageMount("/metrics/".to_owned())));
}
