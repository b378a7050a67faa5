// A receiver of webhooks on loopback, which verifies and records each post.

import { createServer } from "node:http";
import { mock } from "node:test";
import { verify } from "./verify_webhook.mjs";

const WAIT_MS = 15_000;
export const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/** Accepts posts at any path; posts at `/secret...` are signed by SECRET, too. */
export async function receive(baseUrl) {
  const posts = [];
  const wrong = [];
  let last;
  const jwksUrl = new URL("/.well-known/jwks.json", baseUrl).href;
  const server = createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const body = Buffer.concat(pieces);
    const { url: path, headers } = request;
    const secret = path.startsWith("/secret") ? SECRET : undefined;
    try {
      const claims = await verify(headers, body, { secret, jwksUrl, audience: origin });
      last = { headers, body };
      posts.push({ path, headers, claims, body: JSON.parse(body) });
      response.writeHead(204).end();
    } catch (error) {
      wrong.push(`${path}: ${error.stack}: ${JSON.stringify(headers)}`);
      response.writeHead(400).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://localhost:${server.address().port}`;
  /** All posts to a path once there are enough. */
  async function wait(path, isEnough) {
    const until = Date.now() + WAIT_MS;
    for (;;) {
      const own = posts.filter((post) => post.path === path);
      if (wrong.length > 0) throw new Error(wrong.join("\n"));
      if (isEnough(own)) return own;
      if (Date.now() > until) throw new Error(`not enough posts: ${JSON.stringify(own)}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  /** Verifies the last post by a clock that is this far ahead. */
  async function verifyAgain(seconds) {
    mock.timers.enable({ apis: ["Date"], now: Date.now() + seconds * 1000 });
    try {
      await verify(last.headers, last.body, { jwksUrl, audience: origin });
    } finally {
      mock.timers.reset();
    }
  }
  return { origin, wait, verifyAgain, close: () => server.closeAllConnections() ?? server.close() };
}
