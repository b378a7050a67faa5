// The official JavaScript client, generation 0.3, with credentials: callers03.mjs BASE_URL
//
// The server is that of callers.toml. Over HTTP the SDK's fetch sends the credential of its
// handler; over gRPC an interceptor does.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
  createAuthenticatingFetchWithRetry,
} from "a2a-sdk-03/client";
import { GrpcTransportFactory } from "a2a-sdk-03/client/grpc";
import { BINDING, drain, main, raises } from "./harness.mjs";
import * as provider from "./provider.mjs";
import { NOBODY, ROBOT, bearer, forged, noting, saying, tokenOf } from "./provider.mjs";

/** A client with a credential. */
function connect(baseUrl, fields) {
  const handler = { headers: async () => fields, shouldRetryWithHeaders: async () => undefined };
  const over = { fetchImpl: createAuthenticatingFetchWithRetry(noting, handler) };
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [
      new JsonRpcTransportFactory(over),
      new RestTransportFactory(over),
      new GrpcTransportFactory(),
    ],
    preferredTransports: [BINDING],
    cardResolver: new DefaultAgentCardResolver(over),
    clientConfig: { interceptors: BINDING === "GRPC" ? [saying(fields)] : [] },
  });
  return new ClientFactory(options).createFromUrl(baseUrl);
}

const as = async (baseUrl, name) => connect(baseUrl, bearer(await tokenOf(name)));

function params(text, { blocking = true, ...ids } = {}) {
  const parts = [{ kind: "text", text }];
  const message = { kind: "message", messageId: randomUUID(), role: "user", parts, ...ids };
  return { message, configuration: { blocking } };
}

/** Asserts a refusal by the status of HTTP or gRPC. */
async function refused(promise, status, code, what) {
  const error = await raises(undefined, promise, what);
  if (BINDING === "GRPC") assert.equal((error.cause ?? error).code, code, `${what}: ${error}`);
  else assert.equal(provider.lastStatus, status, `${what}: ${error}`);
}

const unknown = (promise, what) => refused(promise, 401, 16, what);

async function everyOperation(client) {
  const done = await client.sendMessage(params("hello"));
  assert.equal(done.status.state, "completed");
  assert.equal((await client.getTask({ id: done.id })).id, done.id, "got");
  const held = await client.sendMessage(params("hold:3000:3", { blocking: false }));
  assert.equal((await client.cancelTask({ id: held.id })).status.state, "canceled");
  const events = await drain(client.sendMessageStream(params("stream:5")));
  assert.equal(events.at(-1).status.state, "completed", "end of the stream");
}

await main("callers-js03", process.argv[2], {
  async aTokenOfTheProviderIsGoodForEveryOperation(baseUrl) {
    await everyOperation(await as(baseUrl, "alice"));
    await everyOperation(await as(baseUrl, "bob"));
  },

  async aKeyIsGoodForEveryOperation(baseUrl) {
    await everyOperation(await connect(baseUrl, ROBOT));
  },

  async withoutACredentialNothingIsAnswered(baseUrl) {
    const client = await connect(baseUrl, NOBODY);
    await unknown(client.sendMessage(params("x")), "send");
    await unknown(drain(client.sendMessageStream(params("stream:3"))), "stream");
    await unknown(client.getTask({ id: "x" }), "get");
    await unknown(client.cancelTask({ id: "x" }), "cancel");
    await unknown(client.getAgentCard(), "extended card");
  },

  async aWrongCredentialIsRefused(baseUrl) {
    const elsewhere = await tokenOf("alice", "https://elsewhere.example");
    for (const [what, fields] of [
      ["forged signature", bearer(forged(await tokenOf("alice")))],
      ["other audience", bearer(elsewhere)],
      ["wrong key", { "X-API-Key": process.env.ROBOT_KEY.slice(1) }],
    ]) {
      const client = await connect(baseUrl, fields);
      await unknown(client.sendMessage(params("x")), what);
    }
  },

  async aTaskIsNotFoundByOthers(baseUrl) {
    const alice = await as(baseUrl, "alice");
    const done = await alice.sendMessage(params("mine"));
    for (const other of [await as(baseUrl, "bob"), await connect(baseUrl, ROBOT)]) {
      await raises("TaskNotFoundError", other.getTask({ id: done.id }), "get");
      await raises("TaskNotFoundError", other.cancelTask({ id: done.id }), "cancel");
      const follow = params("x", { taskId: done.id });
      await raises("TaskNotFoundError", other.sendMessage(follow), "follow-up");
    }
    assert.equal((await alice.getTask({ id: done.id })).id, done.id, "got by alice");
  },

  async whoMayOnlyReadCannotSend(baseUrl) {
    const carol = await as(baseUrl, "carol");
    await raises("TaskNotFoundError", carol.getTask({ id: "x" }), "get");
    await refused(carol.sendMessage(params("x")), 403, 7, "send");
    await refused(carol.cancelTask({ id: "x" }), 403, 7, "cancel");
  },

  async theExtendedCardNeedsACaller(baseUrl) {
    const card = await (await as(baseUrl, "alice")).getAgentCard();
    assert.deepEqual(Object.keys(card.securitySchemes).sort(), ["api-key", "bearer", "openid"]);
  },

  async anOpenAgentIsForAnybody(baseUrl) {
    // Only the first agent's 0.3 card has a gRPC interface.
    if (BINDING === "GRPC") return;
    const client = await connect(`${baseUrl}/agents/open/`, NOBODY);
    const done = await client.sendMessage(params("hello"));
    assert.equal(done.status.state, "completed");
  },
});
