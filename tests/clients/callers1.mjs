// The official JavaScript client, generation 1.0, with credentials: callers1.mjs BASE_URL
//
// The server accepts alice, bob and carol (read only) by tokens of OPENID_ISSUER (openid.mjs), and
// a robot by ROBOT_KEY (callers.toml). Over HTTP the SDK's fetch sends the credential of its
// handler; over gRPC an interceptor does.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Role, TaskState, taskStateToJSON } from "a2a-sdk-1";
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
  createAuthenticatingFetchWithRetry,
} from "a2a-sdk-1/client";
import { GrpcTransportFactory } from "a2a-sdk-1/client/grpc";
import { BINDING, drain, main, raises } from "./harness.mjs";
import * as provider from "./provider.mjs";
import { NOBODY, ROBOT, bearer, forged, noting, rotate, saying, tokenOf } from "./provider.mjs";

/** A client that calls by `fetchImpl`, or over gRPC with `fields`. */
function clientOf(baseUrl, fetchImpl, fields) {
  const over = { fetchImpl };
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

/** A client with a credential. */
function connect(baseUrl, fields) {
  const handler = { headers: async () => fields, shouldRetryWithHeaders: async () => undefined };
  return clientOf(baseUrl, createAuthenticatingFetchWithRetry(noting, handler), fields);
}

const as = async (baseUrl, name) => connect(baseUrl, bearer(await tokenOf(name)));

function request(text, { atOnce = false, ...ids } = {}) {
  const content = { $case: "text", value: text };
  return {
    tenant: "",
    message: {
      messageId: randomUUID(),
      contextId: "",
      taskId: "",
      role: Role.ROLE_USER,
      parts: [{ content, metadata: undefined, filename: "", mediaType: "" }],
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
      ...ids,
    },
    configuration: {
      acceptedOutputModes: [],
      taskPushNotificationConfig: undefined,
      returnImmediately: atOnce,
    },
    metadata: undefined,
  };
}

const byId = (id) => ({ tenant: "", id, metadata: undefined });
const stateOf = (status) => taskStateToJSON(status.state);

async function idsOf(client) {
  const page = await client.listTasks({
    tenant: "",
    contextId: "",
    status: TaskState.TASK_STATE_UNSPECIFIED,
    pageSize: 100,
    pageToken: "",
    statusTimestampAfter: undefined,
  });
  return page.tasks.map((task) => task.id);
}

/** Asserts a refusal, and that the SDK shows the server's message. */
async function refused(promise, status, code, words, what) {
  const error = await raises(undefined, promise, what);
  if (BINDING === "GRPC") assert.equal((error.cause ?? error).code, code, `${what}: ${error}`);
  else assert.equal(provider.lastStatus, status, `${what}: ${error}`);
  assert.match(error.message, words, what);
}

const MISSING = /Authentication is required/;
const WRONG = /the (token|API key|signature|audience|kid)/;
const unknown = (promise, words, what) => refused(promise, 401, 16, words, what);

async function everyOperation(client) {
  const done = await client.sendMessage(request("hello"));
  assert.equal(stateOf(done.status), "TASK_STATE_COMPLETED");
  assert.equal((await client.getTask(byId(done.id))).id, done.id, "got");
  assert.ok((await idsOf(client)).includes(done.id), "list has the task");
  const held = await client.sendMessage(request("hold:3000:3", { atOnce: true }));
  const gone = await client.cancelTask(byId(held.id));
  assert.equal(stateOf(gone.status), "TASK_STATE_CANCELED");
  const events = await drain(client.sendMessageStream(request("stream:5")));
  assert.equal(stateOf(events.at(-1).payload.value.status), "TASK_STATE_COMPLETED", "stream");
  assert.ok(events.some((e) => e.payload.$case === "artifactUpdate"), "artifacts");
}

const cases = {
  async aTokenOfTheProviderIsGoodForEveryOperation(baseUrl) {
    await everyOperation(await as(baseUrl, "alice"));
    await everyOperation(await as(baseUrl, "bob"));
  },

  async aKeyIsGoodForEveryOperation(baseUrl) {
    await everyOperation(await connect(baseUrl, ROBOT));
  },

  async withoutACredentialNothingIsAnswered(baseUrl) {
    const client = await connect(baseUrl, NOBODY);
    await unknown(client.sendMessage(request("x")), MISSING, "send");
    await unknown(drain(client.sendMessageStream(request("stream:3"))), MISSING, "stream");
    await unknown(client.getTask(byId("x")), MISSING, "get");
    await unknown(idsOf(client), MISSING, "list");
    await unknown(client.cancelTask(byId("x")), MISSING, "cancel");
    await unknown(drain(client.resubscribeTask(byId("x"))), MISSING, "subscribe");
    await unknown(client.getAgentCard(), MISSING, "extended card");
  },

  async aWrongCredentialIsRefused(baseUrl) {
    const elsewhere = await tokenOf("alice", "https://elsewhere.example");
    for (const [what, fields] of [
      ["forged signature", bearer(forged(await tokenOf("alice")))],
      ["other audience", bearer(elsewhere)],
      ["wrong key", { "X-API-Key": process.env.ROBOT_KEY.slice(1) }],
    ]) {
      const client = await connect(baseUrl, fields);
      await unknown(client.sendMessage(request("x")), WRONG, what);
      await unknown(drain(client.sendMessageStream(request("stream:3"))), WRONG, what);
    }
  },

  async aTaskIsNotFoundByOthers(baseUrl) {
    const alice = await as(baseUrl, "alice");
    const done = await alice.sendMessage(request("mine"));
    const held = await alice.sendMessage(request("hold:5000:3", { atOnce: true }));
    for (const other of [await as(baseUrl, "bob"), await connect(baseUrl, ROBOT)]) {
      const ids = await idsOf(other);
      assert.ok(!ids.includes(done.id) && !ids.includes(held.id), "list of others");
      await raises("TaskNotFoundError", other.getTask(byId(done.id)), "get");
      await raises("TaskNotFoundError", other.cancelTask(byId(held.id)), "cancel");
      const follow = request("x", { taskId: done.id });
      await raises("TaskNotFoundError", other.sendMessage(follow), "follow-up");
      await raises("TaskNotFoundError", drain(other.resubscribeTask(byId(held.id))), "subscribe");
    }
    await alice.cancelTask(byId(held.id));
    assert.equal((await (await as(baseUrl, "alice")).getTask(byId(done.id))).id, done.id);
  },

  async whoMayOnlyReadCannotSend(baseUrl) {
    const carol = await as(baseUrl, "carol");
    assert.deepEqual(await idsOf(carol), [], "tasks of carol");
    await refused(carol.sendMessage(request("x")), 403, 7, /a2a:send/, "send");
    await refused(carol.cancelTask(byId("x")), 403, 7, /a2a:cancel/, "cancel");
  },

  async theExtendedCardNeedsACaller(baseUrl) {
    const card = await (await as(baseUrl, "alice")).getAgentCard();
    assert.deepEqual(Object.keys(card.securitySchemes).sort(), ["api-key", "bearer", "openid"]);
  },

  async anOpenAgentIsForAnybody(baseUrl) {
    // A gRPC path names no agent, so the agent must be named in the head.
    const fields = BINDING === "GRPC" ? { "a2a-tenant": "open" } : NOBODY;
    const client = await connect(`${baseUrl}/agents/open/`, fields);
    const done = await client.sendMessage(request("hello"));
    assert.equal(stateOf(done.status), "TASK_STATE_COMPLETED");
    assert.ok((await drain(client.sendMessageStream(request("stream:3")))).length > 2);
  },

  async aNewKeyOfTheProviderIsFetched(baseUrl) {
    const old = await as(baseUrl, "alice");
    const done = await old.sendMessage(request("before"));
    await rotate();
    const client = await as(baseUrl, "alice");
    assert.equal((await client.getTask(byId(done.id))).id, done.id, "with the new key");
    await unknown(old.getTask(byId(done.id)), WRONG, "what the old key has signed");
  },
};

const overHttp = {
  async aClientThatIsAskedForATokenGetsOne(baseUrl) {
    const asked = [];
    let known = NOBODY;
    const handler = {
      headers: async () => known,
      async shouldRetryWithHeaders(_, response) {
        if (response.status !== 401) return undefined;
        asked.push(response.headers.get("WWW-Authenticate"));
        return bearer(await tokenOf("alice"));
      },
      async onSuccessfulRetry(fields) {
        known = fields;
      },
    };
    const client = await clientOf(baseUrl, createAuthenticatingFetchWithRetry(fetch, handler));
    await everyOperation(client);
    assert.equal(asked.length, 1, "asked once");
    assert.match(asked[0], /^Bearer realm="a2a"/);
  },
};

await main("callers-js1", process.argv[2], BINDING === "GRPC" ? cases : { ...overHttp, ...cases });
