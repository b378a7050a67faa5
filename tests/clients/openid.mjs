// An OpenID provider on loopback: openid.mjs PORT CERT KEY, two files of PEM. Its clients take
// tokens by the client credentials grant (RFC 6749 §4.4); each token is a JWT (RFC 9068) for the
// requested resource (RFC 8707). POST /rotate replaces the signing key.

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import Provider from "oidc-provider";

const SCOPES = "a2a:read a2a:send a2a:cancel";
const port = Number(process.argv[2]);
const [cert, key] = process.argv.slice(3).map((file) => readFileSync(file));
const issuer = `https://127.0.0.1:${port}`;

const client = (name, scope) => ({
  client_id: name,
  client_secret: `the-secret-of-${name}`,
  grant_types: ["client_credentials"],
  response_types: [],
  redirect_uris: [],
  scope,
});

function newKey() {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  return { ...privateKey.export({ format: "jwk" }), kid: randomUUID(), alg: "ES256", use: "sig" };
}

function callbackWith(key) {
  const provider = new Provider(issuer, {
    clients: [client("alice", SCOPES), client("bob", SCOPES), client("carol", "a2a:read")],
    jwks: { keys: [key] },
    clientDefaults: { id_token_signed_response_alg: "ES256" },
    scopes: SCOPES.split(" "),
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => ({
          scope: SCOPES,
          audience: resource,
          accessTokenFormat: "jwt",
          accessTokenTTL: 600,
          jwt: { sign: { alg: "ES256" } },
        }),
      },
    },
  });
  return provider.callback();
}

let callback = callbackWith(newKey());
const server = createServer({ cert, key }, (request, response) => {
  if (request.method === "POST" && request.url === "/rotate") {
    callback = callbackWith(newKey());
    response.writeHead(204).end();
  } else {
    callback(request, response);
  }
});
server.listen(port, "127.0.0.1", () => console.log(`issuer ${issuer}`));
