// A receiver's look at a post of a webhook, by libraries that know nothing of Peregrine.
//
// `verify` throws unless every proof that is asked for is good:
// - `secret`: the signature of Standard Webhooks by the secret of the configuration (`v1`);
// - `jwksUrl`: the JWT and the signature by Ed25519 (`v1a`) by the keys of the server, whichever of
//   them the post has, and at least one. `audience` is the origin of the receiver.
// It returns the claims of the JWT, or null. Beyond that a receiver knows the post's task, its token
// (X-A2A-Notification-Token), and the ids that it has seen: a server signs for whoever configures it.

import { createHash, createPublicKey, verify as verifySignature } from "node:crypto";
import { pathToFileURL } from "node:url";

import { createRemoteJWKSet, jwtVerify } from "jose";
import { Webhook } from "standardwebhooks";

const JWT_ALGORITHMS = ["RS256", "ES256"];
const TOLERANCE_S = 300;
const REQUIRED = ["aud", "exp", "iat", "jti", "request_body_sha256", "taskId"];

/** `headers`: an object whose names may have any case; `body`: a Buffer as it came. */
export async function verify(said, body, { secret, jwksUrl, audience }) {
  const headers = Object.fromEntries(
    Object.entries(said).map(([name, value]) => [name.toLowerCase(), value]),
  );
  if (!secret && !jwksUrl) throw new Error("name a secret or the URL of keys");
  if (secret) new Webhook(secret).verify(body, headers, { jsonParse: false });
  if (!jwksUrl) return null;
  // jose looks at it only where it is said.
  if (!audience) throw new Error("name the origin of the receiver");
  const token = jwtOf(headers);
  const signatures = ed25519Of(headers);
  if (!token && signatures.length === 0) throw new Error("the server has signed nothing");
  if (signatures.length > 0) await verifyEd25519(headers, body, signatures, jwksUrl);
  return token ? await verifyJwt(token, body, jwksUrl, audience) : null;
}

/** Where the configuration has an authentication of its own, `Authorization` is that. */
function jwtOf(headers) {
  if (headers["x-a2a-notification-jwt"]) return headers["x-a2a-notification-jwt"];
  const [scheme, token = ""] = (headers.authorization ?? "").split(" ");
  return scheme.toLowerCase() === "bearer" && token.split(".").length === 3 ? token : null;
}

async function verifyJwt(token, body, jwksUrl, audience) {
  const { payload } = await jwtVerify(token, createRemoteJWKSet(new URL(jwksUrl)), {
    algorithms: JWT_ALGORITHMS,
    audience,
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
async function verifyEd25519(headers, body, signatures, jwksUrl) {
  const stamp = headers["webhook-timestamp"];
  const age = Math.abs(Date.now() / 1000 - Number(stamp));
  if (!(age <= TOLERANCE_S)) throw new Error("the post is too old");
  const content = Buffer.concat([Buffer.from(`${headers["webhook-id"]}.${stamp}.`), body]);
  const { keys } = await (await fetch(jwksUrl)).json();
  const signing = keys.filter((key) => key.kty === "OKP" && key.crv === "Ed25519");
  const isGood = signing.some((jwk) => {
    const key = createPublicKey({ key: jwk, format: "jwk" });
    return signatures.some((one) => verifySignature(null, content, key, one));
  });
  if (!isGood) throw new Error("no key of Ed25519 has signed the post");
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  // A post as JSON on stdin: headers, body, and what `verify` is told.
  let text = "";
  for await (const piece of process.stdin) text += piece;
  const { headers, body, secret, jwks_url: jwksUrl, audience } = JSON.parse(text);
  console.log(JSON.stringify(await verify(headers, Buffer.from(body), { secret, jwksUrl, audience })));
}
