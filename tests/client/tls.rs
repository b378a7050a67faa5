//! TLS of the client against our own server: which certificates it trusts, which it rejects, and
//! why.

use peregrine::{
    agent::{Profile, echo::Echo},
    client::{HttpVersion, TransportError},
    net::{ClientTls, HttpClient, HttpClientError, HttpClientOptions, Running, Server, Tls},
};
use rcgen::CertificateParams;

use crate::{
    certificates::{Authority, Issued},
    wire::*,
};

fn files(issued: &Issued) -> Tls {
    Tls::new(&issued.cert_file, &issued.key_file)
}

fn serve(tls: Tls) -> Running {
    let server = Server::new().agent(Profile::new("a", "b"), Echo).workers(1);
    server.allow_host("other.example").tls(tls).listen("127.0.0.1:0").start().unwrap()
}

fn url(host: &str, server: &Running) -> String {
    format!("https://{host}:{}/.well-known/agent-card.json", server.addrs()[0].port())
}

fn trusting(authority: &Authority) -> ClientTls {
    ClientTls::default().without_system_authorities().authority(authority.file())
}

fn client(tls: ClientTls) -> HttpClient {
    HttpClient::new(HttpClientOptions { tls, ..HttpClientOptions::default() }).unwrap()
}

async fn status(client: &HttpClient, url: &str) -> Result<u16, TransportError> {
    GET.whole(client, url).await.map(|(status, _)| status)
}

fn tls_reason(error: TransportError) -> String {
    match error {
        TransportError::Tls(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn private_authority_is_trusted_by_name_and_by_address() {
    let authority = Authority::new("client-private");
    let server = serve(files(&authority.server("server")));
    run(async {
        let client = client(trusting(&authority));
        for host in ["127.0.0.1", "localhost"] {
            for version in [HttpVersion::Any, HttpVersion::Http1, HttpVersion::Http2] {
                let request = Ask { version, ..GET };
                for _ in 0..3 {
                    let (status, card) = request.whole(&client, &url(host, &server)).await.unwrap();
                    assert!(status == 200 && card.starts_with('{'), "{host} {version:?}");
                }
            }
        }
    });
}

#[test]
fn untrusted_certificates_give_named_errors() {
    let (authority, other) = (Authority::new("client-refuses"), Authority::new("client-other"));
    let server = serve(files(&authority.server("server")));
    let mut old = CertificateParams::new(["localhost".to_owned()]).unwrap();
    old.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = serve(files(&authority.issue("old", old)));
    let plain = Server::new().agent(Profile::new("a", "b"), Echo).workers(1);
    let plain = plain.listen("127.0.0.1:0").start().unwrap();
    run(async {
        let unknown = status(&client(trusting(&other)), &url("localhost", &server)).await;
        assert!(tls_reason(unknown.unwrap_err()).contains("untrusted authority"));
        let ours = client(trusting(&authority));
        let late = status(&ours, &url("localhost", &expired)).await;
        assert!(tls_reason(late.unwrap_err()).contains("expired"));
        let wrong = status(&ours, &url("[::ffff:127.0.0.1]", &server)).await;
        assert!(tls_reason(wrong.unwrap_err()).contains("another name"));
        tls_reason(status(&ours, &url("localhost", &plain)).await.unwrap_err());
        // `insecure` explicitly trusts every certificate.
        let believing = client(ClientTls::default().insecure());
        assert_eq!(status(&believing, &url("localhost", &server)).await, Ok(200));
        assert_eq!(status(&believing, &url("localhost", &expired)).await, Ok(200));
    });
}

#[test]
fn the_client_presents_its_certificate_on_request() {
    let authority = Authority::new("client-identity");
    let server = serve(files(&authority.server("server")).client_ca(authority.file()));
    let issued = authority.client("alice", Some("alice"), &[]);
    run(async {
        let alice = trusting(&authority).identity(&issued.cert_file, &issued.key_file);
        assert_eq!(status(&client(alice), &url("localhost", &server)).await, Ok(200));
        let anonymous = client(trusting(&authority));
        for version in [HttpVersion::Http1, HttpVersion::Http2] {
            let refused =
                Ask { version, ..GET }.whole(&anonymous, &url("localhost", &server)).await;
            match refused.unwrap_err() {
                TransportError::Tls(why) => assert!(why.contains("CertificateRequired"), "{why}"),
                // Its alert is lost if the server's close meets bytes in flight.
                TransportError::Closed { before_response: true } => {}
                other => panic!("{version:?}: {other}"),
            }
        }
    });
}

#[test]
fn tls_server_without_h2_alpn_is_reported_as_lacking_http2() {
    let authority = Authority::new("client-alpn");
    let issued = authority.server("server");
    let provider = tokio_rustls::rustls::crypto::ring::default_provider();
    let config = tokio_rustls::rustls::ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let config = config.with_single_cert(vec![issued.cert.clone()], issued.key.clone_key());
    let mut old = config.unwrap();
    old.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut older = old.clone();
    older.alpn_protocols.clear();
    for config in [old, older] {
        let config = std::sync::Arc::new(config);
        let server = RawServer::new(move |_, stream| {
            use std::io::{Read, Write};
            let session = tokio_rustls::rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = tokio_rustls::rustls::StreamOwned::new(session, stream);
            let (mut head, mut byte) = (Vec::new(), [0]);
            while stream.read(&mut byte).is_ok_and(|count| count == 1) {
                head.push(byte[0]);
                if head.ends_with(b"\r\n\r\n") {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    stream.write_all(answer).unwrap();
                }
            }
        });
        run(async {
            let client = client(trusting(&authority));
            let url = format!("https://localhost:{}/", server.addr.port());
            let none = Ask { version: HttpVersion::Http2, ..GET }.whole(&client, &url).await;
            assert_eq!(none, Err(TransportError::NoHttp2));
            for _ in 0..3 {
                assert_eq!(status(&client, &url).await, Ok(200));
            }
            // One connection for the refused request; the HTTP/1.1 connection is reused.
            assert_eq!(server.connections(), 2);
        });
    }
}

#[test]
fn unusable_tls_files_are_named_in_errors() {
    let authority = Authority::new("client-files");
    let (one, other) = (authority.client("one", None, &[]), authority.client("two", None, &[]));
    let new = |tls: ClientTls| {
        let options = HttpClientOptions { tls, ..HttpClientOptions::default() };
        HttpClient::new(options).map(drop).unwrap_err()
    };
    let missing = new(ClientTls::default().authority("nowhere.pem"));
    assert!(matches!(missing, HttpClientError::File { file, .. } if file.ends_with("nowhere.pem")));
    let no_cert = new(ClientTls::default().authority(&one.key_file));
    assert!(no_cert.to_string().contains("no certificate in PEM form"), "{no_cert}");
    let no_key = new(ClientTls::default().identity(&one.cert_file, &one.cert_file));
    assert!(no_key.to_string().contains("no unencrypted private key"), "{no_key}");
    let foreign = new(ClientTls::default().identity(&one.cert_file, &other.key_file));
    assert!(matches!(foreign, HttpClientError::File { file, .. } if file == other.key_file));
}

#[test]
fn system_authorities_do_not_trust_a_private_authority() {
    let authority = Authority::new("client-system");
    let server = serve(files(&authority.server("server")));
    run(async {
        // Whether or not this system has root certificates.
        let error = status(&client(ClientTls::default()), &url("localhost", &server)).await;
        assert!(tls_reason(error.unwrap_err()).contains("trusted"));
    });
}
