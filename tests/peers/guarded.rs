//! Servers that require authentication, and cards that offer more than one interface.

use peregrine::{
    client::{
        Binding, ClientBuilder, ClientErrorKind, SendRequest,
        credentials::{Credentials, CredentialsError, Secret},
    },
    model::Generation,
};

use super::{
    expected::{Outcome, Sdk},
    talk::{BINDINGS, Talk, builder, discover, url_of},
};

/// The secret that the peers accept.
const SECRET: &str = "peer-secret";

const GUARDED: [(&str, Sdk, Generation); 4] = [
    ("py1", Sdk::Py1, Generation::V1),
    ("py03", Sdk::Py03, Generation::V03),
    ("js1", Sdk::Js1, Generation::V1),
    ("js03", Sdk::Js03, Generation::V03),
];

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

/// gRPC of the peers has its own port, which is another origin than the card's.
fn with(credentials: Credentials) -> Credentials {
    Credentials { allows_other_origins: true, ..credentials }
}

fn bearer(secret: &str) -> Credentials {
    with(Credentials { bearer: Some(Secret::new(secret)), ..Credentials::default() })
}

fn api_key(secret: &str) -> Credentials {
    with(Credentials { api_key: Some(Secret::new(secret)), ..Credentials::default() })
}

async fn guarded(
    name: &str,
    generation: Generation,
    binding: Binding,
    credentials: Credentials,
) -> Talk {
    let builder = builder(generation, binding).credentials(credentials);
    discover(builder, &url_of(name, "guarded")).await.unwrap()
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn authenticated_client_has_its_tenant_over_each_binding() {
    block_on(async {
        for (name, sdk, generation) in GUARDED {
            for (binding, credentials) in BINDINGS
                .into_iter()
                .flat_map(|binding| [(binding, bearer(SECRET)), (binding, api_key(SECRET))])
            {
                let label = format!("{name} {binding:?} {credentials:?}");
                let client = guarded(name, generation, binding, credentials).await;
                let sent = Outcome::of(client.send(&SendRequest::text("metadata")).await);
                let artifact = sent.items.first().map(|answer| &answer["task"]["artifacts"][0]);
                let tenant = artifact.and_then(|artifact| artifact["metadata"]["tenant"].as_str());
                let is_v1 = matches!(sdk, Sdk::Py1 | Sdk::Js1);
                assert_eq!(tenant, Some(if is_v1 { "acme" } else { "" }), "{label}: {sent:?}");
                let streamed = client.stream(&SendRequest::text("stream 2")).await;
                let streamed = Outcome::of_stream(streamed).await;
                assert_eq!(streamed.items.len(), 5, "{label}: {streamed:?}");
                let card = client.extended_card().await.unwrap();
                // Over gRPC Python's 0.3 returns the public card.
                let is_public = sdk == Sdk::Py03 && binding == Binding::Grpc;
                let extended = if is_public { "" } else { ", extended" };
                assert_eq!(card.name, format!("{name} guarded{extended}"), "{label}");
            }
        }
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn wrong_or_missing_secret_is_an_error_over_each_binding() {
    block_on(async {
        for (name, _, generation) in GUARDED {
            for binding in BINDINGS {
                let label = format!("{name} {binding:?}");
                let client = guarded(name, generation, binding, api_key("wrong")).await;
                let request = SendRequest::text("echo nothing");
                let sent = client.send(&request).await.map_err(|error| error.kind.clone());
                assert!(matches!(sent, Err(ClientErrorKind::Unauthorized)), "{label}: {sent:?}");
                let mut kind = None;
                match client.stream(&request).await {
                    Ok(mut stream) => {
                        if let Some(Err(error)) = stream.next().await {
                            kind = Some(error.kind.clone());
                        }
                    }
                    Err(error) => kind = Some(error.kind.clone()),
                }
                assert_eq!(kind, Some(ClientErrorKind::Unauthorized), "{label}");
                let builder = builder(generation, binding);
                let missing = match discover(builder, &url_of(name, "guarded")).await {
                    Ok(client) => client.send(&request).await.err().map(|error| error.kind.clone()),
                    Err(error) => Some(error.kind.clone()),
                };
                let is_missing = matches!(
                    missing,
                    Some(ClientErrorKind::Credentials(CredentialsError::Missing(_)))
                );
                assert!(is_missing, "{label}: {missing:?}");
            }
        }
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn client_chooses_1_0_interface_and_rejects_0_3_only_card() {
    block_on(async {
        for (name, variant) in
            [("py1", "plain"), ("py1", "compat"), ("js1", "plain"), ("js1", "compat")]
        {
            let client = discover(ClientBuilder::new(), &url_of(name, variant)).await.unwrap();
            let chosen = client.interface();
            let (generation, binding) = (chosen.generation, chosen.binding);
            assert_eq!(
                (generation, binding),
                (Generation::V1, Binding::JsonRpc),
                "{name} {variant}"
            );
        }
        for name in ["py03", "js03"] {
            let refused = discover(ClientBuilder::new(), &url_of(name, "plain")).await;
            let kind = refused.err().map(|error| error.kind.clone());
            assert!(matches!(kind, Some(ClientErrorKind::BelowFloor { .. })), "{name}: {kind:?}");
        }
    });
}
