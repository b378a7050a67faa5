// Shared code of the JavaScript peers: the agent's behavior for each word, and its server.

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { Server, ServerCredentials, status } from "@grpc/grpc-js";
import express from "express";

const SECRET = "peer-secret";
const PAUSE_MS = 200;
export const TENANT = "acme";
export const EXTENSION = "https://example.com/extensions/echo";

/** The members that cards of both generations have. */
export const card = (name) => ({
  name,
  description: "An agent for tests of clients",
  version: "1.2.3",
  provider: { organization: "Peers", url: "https://example.com" },
  documentationUrl: "https://example.com/docs",
  defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain", "application/json"],
  skills: [
    {
      id: "words",
      name: "Words",
      description: "Does what the first word says",
      tags: ["test", "größe"],
      examples: ["echo hello", "stream 5"],
    },
  ],
});

/** What follows the task's first status: artifacts in parts of 1.0, states, and pauses. */
function* steps(word, { text, count, metadata, extensions }) {
  const made = (name, parts, more) => ({ artifact: { artifactId: name, name, parts }, ...more });
  if (word === "echo") yield made("echo", [{ text }]);
  if (word === "stream") {
    for (let n = 0; n < count; n++) {
      const place = { append: n > 0, lastChunk: n + 1 === count };
      yield made("stream", [{ text: `chunk ${n} ` }], place);
    }
  }
  if (word === "slow") {
    for (let n = 0; n < count; n++) {
      yield { pause: true };
      yield { state: "WORKING", says: `step ${n}` };
    }
    yield { pause: true };
  }
  if (word === "history") {
    for (const says of ["one", "two", "three"]) yield { state: "WORKING", says };
  }
  if (word === "data") {
    const nested = { list: [1, -2.5, "three", null, true, { deep: {} }], text: "größe 🦅" };
    yield made("data", [{ data: { big: 2 ** 53, nested } }]);
  }
  if (word === "file") {
    const raw = Buffer.from(Array.from({ length: 256 }, (_, n) => n)).toString("base64");
    yield made("file", [
      { raw, filename: "all.bin", mediaType: "application/octet-stream" },
      { url: "https://example.com/o.txt", filename: "o.txt", mediaType: "text/plain" },
    ]);
  }
  if (word === "metadata") {
    const { artifact } = made("metadata", [{ text: "metadata" }]);
    yield { artifact: { ...artifact, metadata, extensions } };
  }
  const endings = {
    input: { state: "INPUT_REQUIRED", says: "what else?" },
    auth: { state: "AUTH_REQUIRED", says: "sign in first" },
    fail: { state: "FAILED", says: "it failed as asked" },
    reject: { state: "REJECTED", says: "it is refused as asked" },
  };
  yield endings[word] ?? { state: "COMPLETED" };
}

/**
 * The agent. `call` has the contents of a message: ids, text, metadata, extensions, and the task
 * that it continues; `publish` takes events in JSON of 1.0, each in its wrapper.
 */
export class Agent {
  #canceled = new Set();

  async execute({ taskId, contextId, text, task, metadata, extensions }, userMessage, publish) {
    const [word] = text.split(" ");
    const rest = text.slice(word.length + 1);
    const ids = { taskId, contextId };
    const says = (words) =>
      words && { messageId: randomUUID(), role: "ROLE_AGENT", parts: [{ text: words }], ...ids };
    const status = (state, words) => ({
      state: `TASK_STATE_${state}`,
      timestamp: new Date().toISOString(),
      ...(words && { message: says(words) }),
    });
    const moveTo = (state, words) =>
      publish({ statusUpdate: { ...ids, status: status(state, words) } });
    if (word === "message") {
      return publish({ message: { ...says(rest), taskId: "" } });
    }
    if (task) {
      publish({ stored: task });
      moveTo("WORKING");
      const artifact = { artifactId: "answer", name: "answer", parts: [{ text }] };
      publish({ artifactUpdate: { ...ids, artifact } });
      return moveTo("COMPLETED");
    }
    publish({ task: { id: taskId, contextId, status: status("SUBMITTED") }, userMessage });
    moveTo("WORKING");
    const call = { text: rest, count: Number(rest) || 0, metadata, extensions };
    for (const { pause, artifact, state, says: words, ...chunk } of steps(word, call)) {
      if (pause) await new Promise((done) => setTimeout(done, PAUSE_MS));
      if (this.#canceled.delete(taskId)) return moveTo("CANCELED");
      if (artifact) publish({ artifactUpdate: { ...ids, artifact, ...chunk } });
      else if (state) moveTo(state, words);
    }
  }

  cancel(taskId) {
    this.#canceled.add(taskId);
  }
}

/** True for the secret as a bearer token or as an API key. */
export const allowed = (header) =>
  header("authorization") === `Bearer ${SECRET}` || header("x-api-key") === SECRET;

/** Answers 401 to what has no secret; the card is for all. */
export function httpGuard(request, response, next) {
  if (request.path.startsWith("/.well-known/") || allowed((name) => request.get(name))) {
    return next();
  }
  response.set("WWW-Authenticate", 'Bearer realm="peers"');
  response.status(401).json({ error: "unauthorized" });
}

/** The user of a variant: the SDKs show an extended card to those that are known. */
export const userOf = (variant) => async () => {
  const isAuthenticated = variant === "guarded";
  return { isAuthenticated, userName: isAuthenticated ? "peer" : "" };
};

/** The same service, whose calls end with UNAUTHENTICATED when they have no secret. */
function grpcGuard(service, handlers) {
  const refusal = { code: status.UNAUTHENTICATED, details: "no secret" };
  const guarded = {};
  for (const [name, { responseStream }] of Object.entries(service)) {
    guarded[name] = (call, done) => {
      if (allowed((key) => call.metadata.get(key)[0])) return handlers[name](call, done);
      return responseStream ? call.emit("error", refusal) : done(refusal);
    };
  }
  return guarded;
}

const bound = (server) =>
  new Promise((done, failed) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) =>
      error ? failed(error) : done(port),
    ),
  );

/**
 * Serves the variants, each on separate ports. `make(variant, base, grpcPort)` returns
 * `{ routes(app), services }`, the services as pairs of a definition and its handlers.
 */
export async function run(variants, make) {
  const bases = {};
  for (const variant of variants) {
    const grpc = new Server();
    const grpcPort = await bound(grpc);
    const app = express();
    const http = app.listen(0, "127.0.0.1");
    await once(http, "listening");
    const base = `http://127.0.0.1:${http.address().port}`;
    const { routes, services } = make(variant, base, grpcPort);
    const guarded = variant === "guarded";
    if (guarded) app.use(httpGuard);
    routes(app);
    for (const [service, handlers] of services) {
      grpc.addService(service, guarded ? grpcGuard(service, handlers) : handlers);
    }
    bases[variant] = base;
  }
  console.log(JSON.stringify(bases));
}
