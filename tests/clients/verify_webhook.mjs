// A receiver's look at a post of a webhook, by libraries that know nothing of Peregrine.
//
// `verify` throws unless every proof that is asked for is good:
// - `secret`: the signature of Standard Webhooks by the secret of the configuration (`v1`);
// - `jwksUrl`: the JWT and the signature by Ed25519 (`v1a`) by the keys of the server, whichever of
//   them the post has, and at least one. `audience` is the origin of the receiver.
// It returns the claims of the JWT, or null. Beyond that a receiver knows the post's task, its token
// (X-A2A-Notification-Token), and the ids that it has seen: a server signs for each caller that configures it.

import { createHash, createPublicKey, verify as verifySignature } from "node:crypto";

import { createRemoteJWKSet, jwtVerify } from "jose";
import { Webhook } from "standardwebhooks";

const JWT_ALGORITHMS = ["RS256", "ES256"];
const REQUIRED = ["aud", "exp", "iat", "jti", "request_body_sha256", "taskId"];
// How old a post may be: that of Standard Webhooks, and of the server's JWTs.
const TOLERANCE_S = 300;
// By how much the clocks of both sides may differ where a JWT says when it holds.
const LEEWAY_S = 60;

// Each keeps the keys that it has fetched for some minutes.
const keySets = new Map();

function keySet(url) {
  if (!keySets.has(url)) keySets.set(url, createRemoteJWKSet(new URL(url)));
  return keySets.get(url);
}

/** `headers`: an object whose names may have any case; `body`: a Buffer as it came. */
export async function verify(said, body, { secret, jwksUrl, audience }) {
  const headers = Object.fromEntries(
    Object.entries(said).map(([name, value]) => [name.toLowerCase(), value]),
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

/** Where the configuration has an authentication of its own, `Authorization` is that. */
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

/** The libraries of Standard Webhooks have HMAC alone. */
async function verifyEd25519(headers, body, signatures, keys) {
  const stamp = headers["webhook-timestamp"];
  const age = Math.abs(Date.now() / 1000 - Number(stamp));
  if (!(age <= TOLERANCE_S)) throw new Error("the post is too old");
  const content = Buffer.concat([Buffer.from(`${headers["webhook-id"]}.${stamp}.`), body]);
  if (!keys.fresh) await keys.reload();
  const signing = keys.jwks().keys.filter((key) => key.kty === "OKP" && key.crv === "Ed25519");
  const isGood = signing.some((jwk) => {
    const key = createPublicKey({ key: jwk, format: "jwk" });
    return signatures.some((one) => verifySignature(null, content, key, one));
  });
  if (!isGood) throw new Error("no key of Ed25519 has signed the post");
}
