// Verifies a webhook post with standard libraries.
//
// `verify` throws unless every requested check passes:
// - `secret`: the Standard Webhooks signature (`v1`), made with the secret of the configuration;
// - `jwksUrl`: the JWT and the Ed25519 signature (`v1a`), made with keys of the server. A post has
//   one of them or both. `audience` is the origin of the receiver.
// It returns the claims of the JWT, or null. A receiver also checks the task, the token
// (X-A2A-Notification-Token) and repeated ids: a server signs for each caller that sets a webhook.

import { createHash, createPublicKey, verify as verifySignature } from "node:crypto";

import { createRemoteJWKSet, jwtVerify } from "jose";
import { Webhook } from "standardwebhooks";

const JWT_ALGORITHMS = ["RS256", "ES256"];
const REQUIRED = ["aud", "exp", "iat", "jti", "request_body_sha256", "taskId"];
// Maximum age of a post, for Standard Webhooks and for the server's JWTs.
const TOLERANCE_S = 300;
// Allowed clock difference for the times in a JWT.
const LEEWAY_S = 60;

// Each caches the fetched keys for some minutes.
const keySets = new Map();

function keySet(url) {
  if (!keySets.has(url)) keySets.set(url, createRemoteJWKSet(new URL(url)));
  return keySets.get(url);
}

/** `headers`: an object whose names may have any case; `body`: a Buffer of the received bytes. */
export async function verify(received, body, { secret, jwksUrl, audience }) {
  const headers = Object.fromEntries(
    Object.entries(received).map(([name, value]) => [name.toLowerCase(), value]),
  );
  if (!secret && !jwksUrl) throw new Error("name a secret or the URL of keys");
  if (secret) new Webhook(secret).verify(body, headers, { jsonParse: false });
  if (!jwksUrl) return null;
  if (!audience) throw new Error("name the origin of the receiver");
  const [keys, token, signatures] = [keySet(jwksUrl), jwtOf(headers), ed25519Of(headers)];
  if (!token && signatures.length === 0) throw new Error("the server has signed nothing");
  if (signatures.length > 0) await verifyEd25519(headers, body, signatures, keys);
  return token ? await verifyJwt(token, body, keys, audience) : null;
}

/** `Authorization` may hold the configuration's own credentials. */
function jwtOf(headers) {
  if (headers["x-a2a-notification-jwt"]) return headers["x-a2a-notification-jwt"];
  const [scheme, token = ""] = (headers.authorization ?? "").split(" ");
  return scheme.toLowerCase() === "bearer" && token.split(".").length === 3 ? token : null;
}

async function verifyJwt(token, body, keys, audience) {
  const { payload } = await jwtVerify(token, keys, {
    algorithms: JWT_ALGORITHMS,
    audience,
    clockTolerance: LEEWAY_S,
    maxTokenAge: TOLERANCE_S,
    requiredClaims: REQUIRED,
  });
  const digest = createHash("sha256").update(body).digest("hex");
  if (payload.request_body_sha256 !== digest) throw new Error("the JWT is about another body");
  return payload;
}

function ed25519Of(headers) {
  const pairs = (headers["webhook-signature"] ?? "").split(" ").map((one) => one.split(","));
  const own = pairs.filter(([version]) => version === "v1a");
  return own.map(([, text]) => Buffer.from(text, "base64"));
}

/** The libraries of Standard Webhooks support only HMAC. */
async function verifyEd25519(headers, body, signatures, keys) {
  const stamp = headers["webhook-timestamp"];
  const age = Math.abs(Date.now() / 1000 - Number(stamp));
  if (!(age <= TOLERANCE_S)) throw new Error("the post is too old");
  const content = Buffer.concat([Buffer.from(`${headers["webhook-id"]}.${stamp}.`), body]);
  if (!keys.fresh) await keys.reload();
  const signing = keys.jwks().keys.filter((key) => key.kty === "OKP" && key.crv === "Ed25519");
  const isValid = signing.some((jwk) => {
    const key = createPublicKey({ key: jwk, format: "jwk" });
    return signatures.some((one) => verifySignature(null, content, key, one));
  });
  if (!isValid) throw new Error("no key of Ed25519 has signed the post");
}
