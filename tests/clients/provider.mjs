// Credentials for the server of callers.toml: tokens of the provider (openid.mjs) and a key.

import assert from "node:assert/strict";

const ISSUER = process.env.OPENID_ISSUER;

export const ROBOT = { "X-API-Key": process.env.ROBOT_KEY };
export const NOBODY = {};
export const bearer = (token) => ({ Authorization: `Bearer ${token}` });

/** An access token by the client credentials grant; carol may only read. */
export async function tokenOf(name, resource = "https://agents.example") {
  const scope = name === "carol" ? "a2a:read" : "a2a:read a2a:send a2a:cancel";
  const secret = Buffer.from(`${name}:the-secret-of-${name}`).toString("base64");
  const answer = await fetch(`${ISSUER}/token`, {
    method: "POST",
    headers: { Authorization: `Basic ${secret}` },
    body: new URLSearchParams({ grant_type: "client_credentials", resource, scope }),
  });
  const said = await answer.json();
  assert.equal(answer.status, 200, `token: ${JSON.stringify(said)}`);
  return said.access_token;
}

/** The token with a changed character in its signature. */
export function forged(token) {
  const [head, claims, signature] = token.split(".");
  const other = signature[9] === "A" ? "B" : "A";
  return `${head}.${claims}.${signature.slice(0, 9)}${other}${signature.slice(10)}`;
}

/** Makes the provider sign with a new key, and drop the old one. */
export async function rotate() {
  const answer = await fetch(`${ISSUER}/rotate`, { method: "POST" });
  assert.equal(answer.status, 204, "rotate");
}

/** Of the last answer to `noting`: the SDK's errors have an answer's text, not its status. */
export let lastStatus;

/** `fetch`, which records the status. */
export async function noting(...request) {
  const response = await fetch(...request);
  lastStatus = response.status;
  return response;
}

/** An interceptor that sets the same fields in every call; gRPC needs them in lower case. */
export const saying = (fields) => ({
  async before(args) {
    const own = Object.entries(fields).map(([name, value]) => [name.toLowerCase(), value]);
    const serviceParameters = { ...args.options?.serviceParameters, ...Object.fromEntries(own) };
    args.options = { ...args.options, serviceParameters };
  },
  async after() {},
});
